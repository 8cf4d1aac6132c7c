"""The client-side rate limit: ``qps`` on average, ``burst`` at once."""

from __future__ import annotations

from ksched.clock import Clock


class RateLimiter:
    """A token bucket that starts full; callers are served in FIFO order.

    Works by reservation, as client-go's flowcontrol: a caller that finds the bucket empty takes a
    future token and waits until it is due, so FIFO order needs no queue. A negative ``qps`` means
    no limit.
    """

    def __init__(self, qps: float, burst: int, clock: Clock) -> None:
        self._qps = qps
        self._burst = max(burst, 1)
        self._clock = clock
        self._tokens = float(self._burst)
        self._filled_at: float | None = None
        self.waiting = 0
        """Callers that wait for their token."""

    def acquire_nowait(self) -> float:
        """Take a token and return the seconds to ``wait`` before using it, 0 in the common case."""
        qps, tokens, filled_at = self._qps, self._tokens, self._filled_at
        if qps <= 0:
            return 0.0
        self._filled_at = now = self._clock.now()
        if filled_at is not None:
            tokens += (now - filled_at) * qps
            if tokens > self._burst:
                tokens = float(self._burst)
        self._tokens = tokens = tokens - 1.0
        return -tokens / qps if tokens < 0 else 0.0

    async def acquire(self) -> float:
        """Wait for a token; return the seconds waited. A cancelled caller returns its token."""
        delay = self.acquire_nowait()
        if delay > 0:
            await self.wait(delay)
        return delay

    async def wait(self, delay: float) -> None:
        """Wait for a token that was taken."""
        self.waiting += 1
        try:
            await self._clock.sleep(delay)
        except BaseException:
            self._tokens += 1.0
            raise
        finally:
            self.waiting -= 1
