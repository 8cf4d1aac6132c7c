"""HTTP extenders: external services that take part in decisions (KEP-1819)."""

from __future__ import annotations

import base64
from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from ksched.configuration.durations import Seconds
from ksched.configuration.strict_model import Int64, Listed, StrictModel, unless_zero


def _check_base64(text: str) -> str:
    try:
        base64.b64decode(text, validate=True)
    except ValueError:
        raise PydanticCustomError("base64", "must be base64") from None
    return text


Base64 = Annotated[str, AfterValidator(_check_base64)]


class ExtenderManagedResource(StrictModel):
    """An extended resource that an extender manages."""

    name: str = ""
    ignored_by_scheduler: bool = False
    """NodeResourcesFit does not check the resource: only the extender knows what is free."""


class ExtenderTLSConfig(StrictModel):
    """TLS settings of the connection to an extender; data take precedence over files."""

    insecure: bool = False
    """Do not verify the extender's certificate. For tests; no CA may be given with it."""
    server_name: str = ""
    """Name expected in the certificate, if it is not the URL's host."""
    cert_file: str = ""
    key_file: str = ""
    ca_file: str = ""
    cert_data: Base64 = ""
    """A PEM client certificate."""
    key_data: Base64 = ""
    """A PEM client key."""
    ca_data: Base64 = ""
    """PEM certificates to trust."""


class Extender(StrictModel):
    """Address and verbs of an extender; an empty verb is not called."""

    url_prefix: str = ""
    """Address that verbs are appended to, scheme included."""
    filter_verb: str = ""
    """Verb that filters nodes."""
    preempt_verb: str = ""
    """Verb that filters the victims of a preemption."""
    prioritize_verb: str = ""
    """Verb that scores nodes; needs a positive ``weight``."""
    weight: Int64 = 0
    """Factor of the extender's scores. No default: it has to be set with ``prioritizeVerb``."""
    bind_verb: str = ""
    """Verb that binds pods instead of the scheduler; one extender at most."""
    enable_https: Annotated[bool, Field(alias="enableHTTPS")] = False
    """Use TLS settings; without a CA the certificate is not verified."""
    tls_config: ExtenderTLSConfig | None = None
    http_timeout_seconds: Annotated[Seconds, Field(alias="httpTimeout"), unless_zero(5.0)] = 5.0
    """Seconds for one call. A filter that takes longer fails the pod's attempt, a prioritize is
    ignored. 5: the pods behind wait for it."""
    node_cache_capable: bool = False
    """The extender knows the nodes itself; send names instead of whole objects."""
    managed_resources: Listed[ExtenderManagedResource] = ()
    """Call the extender only for pods that request one of these; for every pod if empty."""
    ignorable: bool = False
    """Continue scheduling when the extender fails."""
