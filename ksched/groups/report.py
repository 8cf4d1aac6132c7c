"""What the status of a group's object should say."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from msgspec import Struct

from ksched.api.resources import ApiResource
from ksched.transport import MERGE_PATCH


class Report(Struct, frozen=True):
    """The desired status of a group's object, beside what the object says."""

    resource: ApiResource
    uid: str
    wanted: Hashable
    """The part of the status that is compared, without times."""
    current: Hashable
    """The same of the object as it was seen last."""
    status: Mapping[str, Any]
    """The patch that makes ``current`` into ``wanted``."""
    content_type: str = MERGE_PATCH
    resource_version: str = ""
    """Set where the patch replaces a list as a whole: it applies to this version only."""
