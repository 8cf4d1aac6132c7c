"""``ksched run``: the scheduler, with kube-scheduler's flags."""

from __future__ import annotations

import argparse
import gc
import logging

from ksched.commands import Subparsers
from ksched.configuration.flags import add_run_flags, run_options
from ksched.daemon import logs
from ksched.errors import KschedError

DESCRIPTION = """\
Schedule the pods of a cluster, with kube-scheduler's flags and configuration file.

Without --kubeconfig (or clientConnection.kubeconfig in the file) the cluster is that of KUBECONFIG,
~/.kube/config or the service account of the pod. Health and metrics: https://localhost:10259, for
those whom the API server allows to read them; --insecure-loopback is for trials.

signals:
  SIGTERM, SIGINT   wait for bindings in flight, release the lease and exit with 0; a second one
                    exits at once
  SIGHUP            load the configuration file again, which also happens when it changes
  SIGUSR2           write the queue to the log and compare the cache with the API server

exit codes: 0 stopped by a signal, 1 failure or lease lost, 2 bad usage or configuration
"""

log = logging.getLogger(logs.DAEMON)


def add_parser(commands: Subparsers, summary: str) -> None:
    parser = commands.add_parser(
        "run",
        help=summary,
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_run_flags(parser)
    parser.set_defaults(execute=execute)


def execute(arguments: argparse.Namespace) -> int:
    # What is loaded now stays, so collections among it would only take time. Enabled again by
    # ``daemon.garbage_collection``.
    gc.disable()
    try:
        return _run(arguments)
    finally:
        gc.enable()


def _run(arguments: argparse.Namespace) -> int:
    from ksched.framework.runtime.registry import available

    options = run_options(arguments, available())
    if options.write_config_to:
        from ksched.configuration.dumping import write_config

        write_config(options.configuration, options.write_config_to)
        return 0
    import uvloop

    from ksched.daemon import process

    logs.configure(options.verbosity, options.logging_format)
    try:
        uvloop.run(process.run(options))
    except KschedError:
        raise
    except Exception:
        log.exception("scheduler failed")
        return 1
    finally:
        # The process ends: a garbage collection over all pods and nodes would only delay that.
        gc.freeze()
    return 0
