"""The desired status of a group's object."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from msgspec import Struct

from ksched.api.resources import ApiResource
from ksched.transport import MERGE_PATCH


class Report(Struct, frozen=True):
    """The desired status of a group's object, and its current one."""

    resource: ApiResource
    uid: str
    wanted: Hashable
    """The part of the status that is compared, without times."""
    current: Hashable
    """The same part of the object as last watched."""
    status: Mapping[str, Any]
    """The patch from ``current`` to ``wanted``."""
    content_type: str = MERGE_PATCH
    resource_version: str = ""
    """Set where the patch replaces a list as a whole: it applies to this version only."""
