"""Evaluation of folds, logic, literals and bound names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ksched.cel.errors import EvaluationError
from ksched.cel.values import (
    OptionalValue,
    Value,
    describe,
    equal,
    key_value,
    map_key,
    no_such_overload,
    type_name,
)

Frame = list[Value]
Run = Callable[[Frame], Value]


class Pending:
    """A bound value that was not read yet."""

    __slots__ = ("run",)

    def __init__(self, run: Run) -> None:
        self.run = run


class Failure:
    """Stands for the value of a variable whose evaluation failed."""

    __slots__ = ("error",)

    def __init__(self, error: EvaluationError) -> None:
        self.error = error


def _variable(place: int) -> Run:
    return lambda frame: frame[place]


def _accumulator(place: int) -> Run:
    def read(frame: Frame) -> Value:
        value = frame[place]
        if type(value) is Failure:
            raise value.error.with_traceback(None)
        return value

    return read


def _lazy(place: int) -> Run:
    def read(frame: Frame) -> Value:
        value = frame[place]
        if type(value) is Pending:
            try:
                value = value.run(frame)
            except EvaluationError as error:
                frame[place] = Failure(error)
                raise
            frame[place] = value
        elif type(value) is Failure:
            raise value.error.with_traceback(None)
        return value

    return read


READERS: Mapping[str, Callable[[int], Run]] = {
    "variable": _variable,
    "element": _variable,
    "accumulator": _accumulator,
    "lazy": _lazy,
}


def logic(terms: Sequence[Run], decisive: bool) -> Run:
    """``&&`` (decided by false) or ``||`` (by true); a decisive term absorbs errors."""

    def run(frame: Frame) -> Value:
        error: EvaluationError | None = None
        for term in terms:
            try:
                value = term(frame)
            except EvaluationError as problem:
                error = error or problem
                continue
            if value is decisive:
                return decisive
            if type(value) is not bool:
                error = error or no_such_overload()
        if error is not None:
            raise error.with_traceback(None)
        return not decisive

    return run


def not_equal(left: Value, right: Value) -> bool:
    """``left != right``, true also for values that cannot be compared."""
    try:
        return not equal(left, right)
    except EvaluationError:
        return True


def equals_string(operand: Run, text: str, negated: bool) -> Run:
    """Comparison with a constant string, the most frequent operation."""
    if negated:
        return lambda frame: not_equal(operand(frame), text)

    def run(frame: Frame) -> Value:
        value = operand(frame)
        return value == text if type(value) is str else equal(value, text)

    return run


def list_builder(elements: Sequence[tuple[Run, bool]]) -> Run:
    """A list literal; optional elements without a value are omitted."""

    def run(frame: Frame) -> Value:
        built: list[Value] = []
        for element, is_optional in elements:
            value = element(frame)
            if is_optional:
                if type(value) is not OptionalValue:
                    message = "cannot initialize optional list element from non-optional value"
                    raise EvaluationError(f"{message} {describe(value)}")
                if not value.present:
                    continue
                value = value.value
            built.append(value)
        return built

    return run


def map_builder(entries: Sequence[tuple[Run, Run, bool]]) -> Run:
    """A map literal; optional entries without a value are omitted."""

    def run(frame: Frame) -> Value:
        built: dict[Value, Value] = {}
        for key, value, is_optional in entries:
            name, item = key(frame), value(frame)
            if is_optional:
                if type(item) is not OptionalValue:
                    message = f"cannot initialize optional entry '{describe(name)}' from"
                    raise EvaluationError(f"{message} non-optional value {describe(item)}")
                if not item.present:
                    built.pop(map_key(name), None)
                    continue
                item = item.value
            built[map_key(name)] = item
        return built

    return run


def appending(place: int, element: Run) -> Run:
    """Append to the list that a fold builds."""

    def run(frame: Frame) -> Value:
        built = frame[place]
        if type(built) is Failure:
            raise built.error.with_traceback(None)
        built.append(element(frame))
        return built

    return run


def inserting(place: int, parts: Sequence[Run]) -> Run:
    """Insert a key, or another map's keys, into the map that a fold builds."""

    def run(frame: Frame) -> Value:
        built = frame[place]
        if type(built) is Failure:
            raise built.error.with_traceback(None)
        values = [part(frame) for part in parts]
        added = values[0] if len(values) == 1 else {map_key(values[0]): values[1]}
        for key, value in added.items():
            if key in built:
                shown = describe(key_value(key))
                raise EvaluationError(f"insert failed: key {shown} already exists")
            built[key] = value
        return built

    return run


@dataclass(slots=True)
class Fold:
    """A loop over a list or map."""

    over: Run
    init: Run
    condition: Run | None
    """``None`` if the loop always runs to the end."""
    step: Run
    result: Run
    places: tuple[int, int, int]
    """Places in the frame of the accumulator and the variables; 0 for no second variable."""

    def run(self, frame: Frame) -> Value:
        accumulator, first, second = self.places
        members = self._members(self.over(frame), bool(second))
        start = self.init(frame)
        # Steps modify lists and maps in place.
        frame[accumulator] = start.copy() if type(start) in (list, dict) else start
        condition, step = self.condition, self.step
        for member in members:
            if second:
                frame[first], frame[second] = member
            else:
                frame[first] = member
            if condition is not None and not condition(frame):
                break
            try:
                frame[accumulator] = step(frame)
            except EvaluationError as error:
                frame[accumulator] = Failure(error)
        return self.result(frame)

    def _members(self, collection: Value, pairs: bool) -> Sequence[Value]:
        if type(collection) is list:
            return list(enumerate(collection)) if pairs else collection
        if isinstance(collection, dict):
            if pairs:
                return [(key_value(key), value) for key, value in collection.items()]
            return [key_value(key) for key in collection]
        name = type_name(collection)
        if pairs:
            raise EvaluationError(f"unsupported comprehension range type: {name}")
        raise EvaluationError(f"got '{name}', expected iterable type")
