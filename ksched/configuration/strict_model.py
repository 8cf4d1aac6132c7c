"""The base of all configuration models and the number types of the API.

Strict as kube-scheduler's decoder: no unknown field, no conversion between types, integers within
their width. Attributes are snake_case, the file's spelling is camelCase.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from ksched.configuration.durations import FROM_FILE

T = TypeVar("T")

GROUP: Final = "kubescheduler.config.k8s.io"
API_VERSION: Final = f"{GROUP}/v1"

Int32 = Annotated[int, Field(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]

# An immutable list of the API. Only the container is lenient (a YAML list is not a tuple).
Listed = Annotated[tuple[T, ...], Field(strict=False)]


class StrictModel(BaseModel):
    """Frozen data; Python code uses attribute names, files the API's spelling."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
        allow_inf_nan=False,
    )

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, data: Any) -> Any:
        if isinstance(data, Mapping):
            return {key: value for key, value in data.items() if value is not None}
        return data


Model = TypeVar("Model", bound=StrictModel)


def decode(model: type[Model], data: Mapping[str, Any]) -> Model:
    """Decode data in a file's spelling: camelCase only, durations only as Go strings.

    kube-scheduler: DecodeInto.
    """
    return model.model_validate(data, by_alias=True, by_name=False, context=FROM_FILE)


def unless_zero(default: Any) -> AfterValidator:
    """Replace the zero value by the default: Go cannot distinguish it from an absent one."""
    return AfterValidator(lambda value: value or default)
