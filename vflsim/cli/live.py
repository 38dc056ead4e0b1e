"""``vflsim live``, ``vflsim party`` and ``vflsim keys``: every party a process of its own."""

import shlex
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from vflsim.cli.app import (
    Application,
    Overrides,
    Protocols,
    Reported,
    ScenarioFile,
    Seeds,
    Trust,
    app,
    console,
    load,
    say,
    until_interrupted,
)
from vflsim.cli.runs import present
from vflsim.errors import ScenarioError
from vflsim.vocabulary.execution_options import RunOptions

Timeout = Annotated[
    float,
    typer.Option(
        help="Seconds without a sign of life until a party counts as lost. One that has gone has as long to return.",
        min=3,
        metavar="S",
    ),
]
NO_DELAYS = "timing={network: {kind: dedicated}}"
"""The override by which nothing takes time but what the machine takes."""
keys = Application(help="Keys and certificates for live runs.", no_args_is_help=True)
app.add_typer(keys, name="keys")


@app.command()
def live(
    scenario: ScenarioFile,
    out_folder: Annotated[
        Path | None, typer.Option("--out", help="Where results go (default: results/NAME-live).")
    ] = None,
    overrides: Overrides = None,
    seeds: Seeds = None,
    protocol: Protocols = None,
    delays: Annotated[
        Literal["emulated", "none"],
        typer.Option(help="Wait the times that the scenario draws, or none but what this machine takes."),
    ] = "emulated",
    listen: Annotated[
        str | None,
        typer.Option(help="Play the server alone: wait here for clients that others start.", metavar="HOST:PORT"),
    ] = None,
    identity: Annotated[
        Path | None, typer.Option(help="With --listen: a folder that `vflsim keys init` has made for the server.")
    ] = None,
    parts: Annotated[
        Path, typer.Option(help="With --listen: where clients of this machine write their parts of the results.")
    ] = Path("parts"),
    timeout: Timeout = 30.0,
    reported: Reported = True,
) -> None:
    """Run a scenario live: the server and each client are processes, connected by TLS; without --listen all here."""
    hosting = None
    if listen is not None:
        if identity is None:
            raise ScenarioError("--listen without --identity", "vflsim live", "the server's folder of vflsim keys init")
        hosting = (*_address(listen, "--listen"), identity, parts)
    texts = [*(overrides or ()), *([NO_DELAYS] if delays == "none" else ())]
    try:
        loaded = load(scenario, texts, seeds, protocol)
    except ScenarioError as error:
        raise error.instead(f"--set {NO_DELAYS}", "--delays none") from None
    from vflsim.remote.party import refuse_unfit
    from vflsim.remote.world import timer_lateness
    from vflsim.studies.display import Display
    from vflsim.studies.engines.live import Hosting, LivePool
    from vflsim.studies.study import run_study
    from vflsim.vocabulary.amounts import quantity

    refuse_unfit(loaded)
    page, folder = console(), out_folder or Path("results") / f"{loaded.name}-live"
    display = Display(page, loaded)
    pool = LivePool(loaded, timeout, None if hosting is None else Hosting(*hosting))
    if hosting is None:
        say(f"live: the server and {loaded.clients} clients, each a process; delays: {delays}")
        usual, most = timer_lateness()
        say(f"timers of this machine fire {quantity(usual, 's')} late (median), and {quantity(most, 's')} at most")
    else:
        say(f"live: waiting at {listen} for {loaded.clients} clients; delays: {delays}")
    kept = f"interrupted: runs that had ended are kept in {folder}; a live study begins anew with: {_anew()}"
    with until_interrupted(display, lambda: kept), pool:
        study = run_study(loaded, folder, path="event", options=_client_by_client(), watcher=display.alone, engine=pool)
    present(page, study, folder, reported, _anew())


@app.command()
def party(
    scenario: ScenarioFile,
    number: Annotated[str, typer.Option("--party", help="The number of this client, or `server`.", metavar="N")],
    identity: Annotated[Path, typer.Option(help="A folder that `vflsim keys init` has made for this party.")],
    connect: Annotated[
        str | None, typer.Option(help="Of a client: where the server listens.", metavar="HOST:PORT")
    ] = None,
    listen: Annotated[
        str | None, typer.Option(help="Of the server: where it waits for clients.", metavar="HOST:PORT")
    ] = None,
    out_folder: Annotated[
        Path | None, typer.Option("--out", help="Of the server: where results go (default: results/NAME-live).")
    ] = None,
    parts: Annotated[Path, typer.Option(help="Where clients write their parts of the results.")] = Path("parts"),
    overrides: Overrides = None,
    seeds: Seeds = None,
    protocol: Protocols = None,
    timeout: Timeout = 30.0,
    peer_port: Annotated[
        int,
        typer.Option(
            help="Where other clients reach this one, if the protocol has them send each other messages (0: any port).",
            min=0,
            max=65_535,
            metavar="PORT",
        ),
    ] = 0,
) -> None:
    """Play one party of a live run in this process: a client until the server says goodbye, or the server."""
    if number == "server":
        if listen is None or connect is not None:
            raise ScenarioError("--party server", "vflsim party", "--listen HOST:PORT, and no --connect")
        live(
            scenario, out_folder, overrides, seeds, protocol,
            listen=listen, identity=identity, parts=parts, timeout=timeout,
        )  # fmt: skip
        return
    if connect is None or listen is not None or out_folder is not None:
        raise ScenarioError(f"--party {number}", "vflsim party", "--connect HOST:PORT, without --listen and --out")
    host, port = _address(connect, "--connect")
    loaded = load(scenario, overrides, seeds, protocol)
    from vflsim.remote.client import LiveClient

    if not number.isdecimal() or not 0 < int(number) <= loaded.clients:
        allowed = f"server, or 1 to {loaded.clients}, the clients of the scenario"
        raise ScenarioError(f"--party {number}", "vflsim party", allowed)
    LiveClient(loaded, int(number), host, port, identity, parts, timeout, peer_port=peer_port).play()


@app.command()
def replay(
    results: Annotated[Path, typer.Argument(help="Results of `vflsim live`, with `record: events`.")],
    out_folder: Annotated[
        Path | None, typer.Option("--out", help="Where results go (default: RESULTS-replay).")
    ] = None,
    trust: Trust = False,
) -> None:
    """Simulate live runs again, every party meeting its messages in the live order: equal weights, no times."""
    from vflsim.results import Results
    from vflsim.results.store.manifest import stored_scenario
    from vflsim.studies.display import Display
    from vflsim.studies.engines.live import Replays
    from vflsim.studies.study import run_study

    live = Results.open(results, trust)
    loaded = stored_scenario(results, live.runs)
    page, folder = console(), out_folder or results.with_name(f"{results.name}-replay")
    display = Display(page, loaded)
    with until_interrupted(display, lambda: f"interrupted: replays that had ended are kept in {folder}"):
        replays = Replays(loaded, live)
        study = run_study(
            loaded, folder, path="event", options=_client_by_client(), watcher=display.alone, engine=replays
        )
    say("times of replays mean nothing: one input a virtual second")
    present(page, study, folder, reported=False, rerun=_anew())


@keys.command("init")
def keys_init(
    folder: Annotated[Path, typer.Argument(help="A new folder.")],
    clients: Annotated[int, typer.Option(min=1, max=100_000, help="The number of clients.", metavar="N")],
    days: Annotated[int, typer.Option(min=1, max=3_650, help="How long certificates are valid.", metavar="D")] = 30,
) -> None:
    """Make an authority, and a key and certificate for the server and for each client."""
    from vflsim.remote.keys import make_identities

    keys = make_identities(folder, clients, days)
    say(f"{len(keys)} identities in {folder}, valid for {days} days; give each party its own folder, and nothing else")


def _anew() -> str:
    """Return the given command: live studies and replays cannot be resumed."""
    return shlex.join(["vflsim", *sys.argv[1:]])


def _address(text: str, option: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise ScenarioError(f"{option} {text}", "the command line", "HOST:PORT, with a port from 1 to 65535")
    return host.strip("[]"), int(port)


def _client_by_client() -> RunOptions:
    return RunOptions.of(anew=True, eager=True, checkpoint_every=None)
