from __future__ import annotations

from ksched.api.devices import DeviceClass
from ksched.cache.listers import Listers
from ksched.devices.extended_resource_classes import ExtendedResourceClasses
from ksched.testing.device_builders import DeviceClassBuilder, make_device_class

GPU = "example.com/gpu"


def created(name: str, year: int, resource: str = GPU) -> DeviceClassBuilder:
    made = make_device_class(name, extended=resource)
    return made.merge({"metadata": {"creationTimestamp": f"{year}-01-01T00:00:00Z"}})


class World:
    def __init__(self, *classes: DeviceClassBuilder) -> None:
        listers = Listers()
        self.lister = listers.require(DeviceClass)
        self.classes = listers.view(ExtendedResourceClasses)
        for one in classes:
            self.lister.put(one.obj())

    def get(self, resource: str) -> str | None:
        found = self.classes.get(resource)
        return None if found is None else found.metadata.name


def implicit(name: str) -> str:
    return f"deviceclass.resource.kubernetes.io/{name}"


def test_a_class_is_known_by_two_names() -> None:
    world = World(created("a", 2020))
    assert world.get(GPU) == world.get(implicit("a")) == "a"


def test_the_newer_class_gets_the_name_and_the_loser_has_none() -> None:
    world = World(created("new", 2021), created("old", 2020))
    assert (world.get(GPU), world.get(implicit("old"))) == ("new", None)
    world = World(created("old", 2020), created("new", 2021))
    assert (world.get(GPU), world.get(implicit("old"))) == ("new", "old")
    assert World(created("b", 2020), created("a", 2020)).get(GPU) == "a"


def test_a_class_that_goes_takes_the_name_with_it_whoever_has_it() -> None:
    world = World(created("old", 2020), created("new", 2021))
    world.lister.remove(created("old", 2020).obj())
    assert (world.get(GPU), world.get(implicit("new"))) == (None, "new")


def test_another_resource() -> None:
    world = World(created("a", 2020))
    changes: list[int] = []
    world.classes.on_change(lambda: changes.append(1))
    world.lister.put(created("a", 2020, "example.com/other").obj())
    assert (world.get(GPU), world.get("example.com/other")) == (None, "a")
    assert changes
