"""For plugins that keep something between pods: how to know what changed, and how much to keep.

Whatever changes has a ``ChangeLog``; a reader has a ``Cursor`` into it, which says what changed
since it was last advanced, or that it is too long ago (``NEVER`` is a generation that nothing has).
``RecentlyUsed`` is a dictionary with a bound. Does not belong here: what the runtime keeps of a
plugin's answers (``ksched.framework.depends_on``).
"""

from ksched.cache.change_log import NEVER, ChangeLog, Cursor
from ksched.cache.recently_used import RecentlyUsed

__all__ = ["NEVER", "ChangeLog", "Cursor", "RecentlyUsed"]
