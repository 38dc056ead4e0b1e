"""SimGrid's platform files: hosts, links and routes to a server, as parties with links of their own.

A platform shares any link among any routes; here a party has one link up and one down. So the links that all routes to
the server have in common become the server's, and the others the client's. A link that some clients share is nobody's:
each has it for itself, which a note says. Source: SimGrid's DTD, versions 3 to 4.1 (Casanova et al., JPDC 2014).
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from vflsim.errors import nearest
from vflsim.files import text
from vflsim.streams import few
from vflsim.timing.foreign.base import ForeignClient, Format, Platform, brief, head

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

_NUMBER = re.compile(r"\s*([0-9.]+(?:[eE][+-]?\d+)?)\s*([A-Za-z]*)\s*")
_POWERS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30}
SPEEDS = {f"{prefix}f": factor for prefix, factor in _POWERS.items()} | {"": 1.0}
BANDWIDTHS = {f"{prefix}Bps": 8 * factor for prefix, factor in _POWERS.items()}
BANDWIDTHS |= {f"{prefix}bps": factor for prefix, factor in _POWERS.items()} | {"": 8.0}
TIMES = {"ps": 1e-12, "ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
TIMES |= {"": 1.0}
_DIGITS = re.compile(r"[0-9]{1,12}")
_MOST, _MOST_HOSTS, _DEEPEST = 1e30, 1_000_000, 100
"""The largest number of a file, in base units; most hosts; most zones in each other."""
_ZONES = {"zone", "AS"}
_UNREAD = {"peer", "cabinet", "bypassRoute", "bypassZoneRoute", "bypassASroute", "zoneRoute", "ASroute", "include"}


@dataclass(frozen=True)
class _Link:
    """Bits per second, seconds, and whether messages share it."""

    rate: float
    latency: float
    shared: bool = True


class SimGridPlatform(Format):
    """Hosts of one zone with full routes, or of clusters; ``server`` names the host of the server."""

    title = "SimGrid's platforms"
    has_hosts = True

    @classmethod
    @override
    def recognises(cls, path: Path) -> bool:
        return b"<platform" in head(path) or b"simgrid.dtd" in head(path)

    @override
    def read(self) -> Platform:
        self._links: dict[str, _Link] = {}
        self._speeds: dict[str, float] = {}
        self._routes: dict[tuple[str, str], tuple[str, ...]] = {}
        self._clusters: dict[str, tuple[str, tuple[str, ...]]] = {}
        self._take(self._root())
        if len(self._speeds) < 2:
            raise self.error(f"has {len(self._speeds)} hosts", "two or more: the server and its clients")
        server = self.wishes.server or next(iter(self._speeds))
        if server not in self._speeds:
            remedy = nearest(server, self._speeds) or "name a host with --server"
            raise self.error(f"has no host {server!r}", f"{', '.join([*self._speeds][:10])}", remedy)
        return self._star(server)

    def _root(self) -> Element:
        from xml.etree import ElementTree

        try:
            source = text(self.path)
        except (OSError, UnicodeDecodeError) as error:
            raise self.error(f"cannot be read: {error}", "XML in UTF-8") from None
        if "<!ENTITY" in source:
            raise self.error("declares entities, which may expand to all memory", "a platform without them")
        # `link:ctn` is the name of a tag in old platforms, not of a namespace
        source = source.replace("link:ctn", "link_ctn")
        try:
            root = ElementTree.fromstring(source)
        except ElementTree.ParseError as error:
            raise self.error(f"is no XML: {error}", "a SimGrid platform") from None
        version = re.match(r"\d{1,3}", root.get("version", "0"))
        if root.tag != "platform" or version is None or int(version[0]) < 3:
            what = f"is <{root.tag} version={root.get('version')!r}>"
            raise self.error(what, '<platform version="3"> or later', "simgrid_update_xml mends older files")
        return root

    # --- reading the file ---------------------------------------------------------------------------------------------

    def _take(self, root: Element, depth: int = 0) -> None:
        if depth > _DEEPEST:
            raise self.error(f"has zones more than {_DEEPEST} deep", f"at most {_DEEPEST} zones in each other")
        for element in root:
            if element.tag in _ZONES:
                routing = element.get("routing", "Full")
                if routing not in ("Full", "None", "Cluster") and any(child.tag == "route" for child in element):
                    what = f"zone {element.get('id')!r} has routing={routing!r}, whose routes are computed"
                    raise self.error(what, "routing='Full'", "write out its routes")
                self._take(element, depth + 1)
            elif element.tag == "host":
                self._speeds[self._name(element, self._speeds)] = self._speed(element)
            elif element.tag == "link":
                self._links[self._name(element, self._links)] = self._link(element)
            elif element.tag == "route":
                self._route(element)
            elif element.tag == "cluster":
                self._cluster(element)
            elif element.tag in _UNREAD:
                raise self.error(f"has <{element.tag}>, which is not read", "zones, hosts, links, routes, clusters")

    def _name(self, element: Element, taken: Container[str] = ()) -> str:
        name = element.get("id")
        if name is None:
            raise self.error(f"has a <{element.tag}> without id", "a name for each")
        if name in taken:
            raise self.error("stands twice", "names of their own", at=f"<{element.tag} id={name!r}>")
        return name

    def _speed(self, element: Element) -> float:
        return self._quantity(element, "power" if "power" in element.attrib else "speed", SPEEDS)

    def _link(self, element: Element) -> _Link:
        policy = element.get("sharing_policy", "SHARED").upper()
        latency = self._quantity(element, "latency", TIMES) if "latency" in element.attrib else 0.0
        return _Link(self._quantity(element, "bandwidth", BANDWIDTHS), latency, policy != "FATPIPE")

    def _quantity(self, element: Element, key: str, units: Mapping[str, float]) -> float:
        written = element.get(key, "").split(",")[0]  # a host's speeds by pstate: the first is the fastest
        match = _NUMBER.fullmatch(written)
        at, least = f"<{element.tag} id={element.get('id')!r}>", 0.0 if units is TIMES else 1.0
        what = f"{key} is {brief(written)}"
        if match is None or match[2] not in units:
            raise self.error(what, f"a number and one of {', '.join(filter(None, units))}", at=at)
        try:
            value = float(match[1]) * units[match[2]]
        except ValueError:
            raise self.error(what, "a number with a unit", at=at) from None
        if not least <= value <= _MOST:
            unit = next(name for name, factor in units.items() if name and factor == 1)
            raise self.error(what, f"a number between {least:g} {unit} and {_MOST:g} {unit}", at=at)
        return value

    def _route(self, element: Element) -> None:
        ends, links = (element.get("src", ""), element.get("dst", "")), list[str]()
        for part in element:
            if part.tag in ("link_ctn", "link_ctn_"):
                name = part.get("id", "")
                if name not in self._links:
                    raise self.error(f"goes over link {name!r}, which is not there", at=f"route {' → '.join(ends)}")
                links.append(name)
        self._routes[ends] = tuple(links)
        if element.get("symmetrical", "YES").upper() != "NO":
            self._routes.setdefault((ends[1], ends[0]), tuple(reversed(links)))

    def _cluster(self, element: Element) -> None:
        """Give each node a link of its own (two alike ones unless it is shared by both ways) and all the backbone."""
        name, speed = self._name(element), self._speed(element)
        own = _Link(self._quantity(element, "bw", BANDWIDTHS), self._quantity(element, "lat", TIMES))
        common: tuple[str, ...] = ()
        if "bb_bw" in element.attrib:
            latency = self._quantity(element, "bb_lat", TIMES) if "bb_lat" in element.attrib else 0.0
            shared = element.get("bb_sharing_policy", "SHARED").upper() != "FATPIPE"
            self._links[f"{name}'s backbone"] = _Link(self._quantity(element, "bb_bw", BANDWIDTHS), latency, shared)
            common = (f"{name}'s backbone",)
        for number in self._numbers(element):
            host = f"{element.get('prefix', '')}{number}{element.get('suffix', '')}"
            if len(self._speeds) >= _MOST_HOSTS:
                raise self.error(f"has more than {_MOST_HOSTS:,} hosts", f"at most {_MOST_HOSTS:,}")
            self._speeds[host], self._links[f"{host}'s link"] = speed, own
            self._clusters[host] = name, common

    def _numbers(self, element: Element) -> Iterator[int]:
        for part in element.get("radical", "").split(","):
            first, _, last = part.partition("-")
            if not _DIGITS.fullmatch(first.strip()) or not _DIGITS.fullmatch((last or first).strip()):
                what, at = f"radical is {brief(element.get('radical'))}", f"cluster {element.get('id')!r}"
                raise self.error(what, "0-99 or 1,4-7", at=at)
            yield from range(int(first), int(last or first) + 1)

    # --- routes to the server -----------------------------------------------------------------------------------------

    def _path(self, one: str, other: str) -> tuple[str, ...]:
        if (one, other) in self._routes:
            return self._routes[one, other]
        (here, common), (there, _) = (self._clusters.get(host, ("", ())) for host in (one, other))
        if here and here == there:
            return f"{one}'s link", *common, f"{other}'s link"
        remedy = "routes between clusters, and through gateways, are not read"
        raise self.error(f"has no route from {one!r} to {other!r}", "a route of each client to the server", remedy)

    def _star(self, server: str) -> Platform:
        hosts = self.chosen([host for host in self._speeds if host != server])
        ways = {host: (self._path(host, server), self._path(server, host)) for host in hosts}
        common = [set.intersection(*(set(way[side]) for way in ways.values())) for side in (0, 1)]
        fat = {name for name, link in self._links.items() if not link.shared}
        servers = [common[side] - fat if len(hosts) > 1 else set[str]() for side in (0, 1)]
        users: dict[str, list[str]] = {}
        for host, way in ways.items():
            for name in {*way[0], *way[1]} - servers[0] - servers[1] - fat:
                users.setdefault(name, []).append(host)
        notes = [
            f"Link {name!r} of the platform is shared by {few(some)}; here each has it for itself."
            for name, some in users.items()
            if len(some) > 1
        ]
        notes.append(
            "Rates and latencies are those of the file. SimGrid's default model (LV08) multiplies rates by 0.97 and "
            "latencies by 13.01."
        )
        clients = {host: self._client(host, way, servers) for host, way in ways.items()}
        return Platform(clients, self._server(server, servers), notes=notes)

    def _client(
        self, host: str, way: tuple[Sequence[str], Sequence[str]], servers: Sequence[set[str]]
    ) -> ForeignClient:
        link: dict[str, Any] = {}
        for key, names, taken in (("up", way[0], servers[0]), ("down", way[1], servers[1])):
            rates = [self._links[name].rate for name in names if name not in taken]
            link |= {key: _rate(min(rates))} if rates else {}
        up, down = (sum(self._links[name].latency for name in names) for names in way)
        notes = []
        if abs(up - down) > 1e-9 * max(up, down):
            notes.append(f"The latency of {host} is that of its way to the server; the way back takes {down:.6g} s.")
        link |= {"latency": f"{1e6 * up:.9g} us"} if up else {}
        return ForeignClient(self._keys(host, link), notes)

    def _server(self, server: str, taken: Sequence[set[str]]) -> dict[str, Any]:
        ways = {"down": taken[0], "up": taken[1]}
        rates = {key: min(self._links[name].rate for name in names) for key, names in ways.items() if names}
        return self._keys(server, {key: _rate(rate) for key, rate in rates.items()})

    def _keys(self, host: str, link: Mapping[str, Any]) -> dict[str, Any]:
        compute = {"kind": "flops", "rate": f"{self._speeds[host] / 1e6:.9g} MFLOPS"}
        return {"compute": compute, **({"link": link} if link else {})}


def _rate(bits: float) -> str:
    return f"{bits / 1e6:.9g} Mbps"
