"""`rwkv-server state …` against the API in this process."""

from __future__ import annotations

import argparse
import json

import httpx
import pytest
import state_app

from rwkv_server.__main__ import main
from rwkv_server.states.cli import arguments, command
from rwkv_server.states.cli.client import StatesClient


@pytest.fixture
async def engine():
    return (await state_app.start())[0]


@pytest.fixture
def shell(engine):
    """Runs a command line; returns the exit code and what it printed."""
    parser = argparse.ArgumentParser()
    arguments.add_arguments(parser)

    async def run(*line: str) -> tuple[int, str]:
        printed: list[str] = []
        async with state_app.client(engine) as http:
            setting = command.Setting(StatesClient(http), printed.append, engine.saved._clock)
            code = await command.execute(parser.parse_args(list(map(str, line))), setting)
        return code, "\n".join(printed)

    return run


async def make(engine, **body):
    async with state_app.client(engine) as http:
        return (await http.post("/v1/states", json={"text": "hello", **body})).json()["ref"]


async def test_ls_shows_all_pages(engine, shell, monkeypatch):
    monkeypatch.setattr("rwkv_server.states.cli.client.PAGE", 2)
    refs = {await make(engine) for _ in range(5)}
    code, text = await shell("ls")
    assert code == 0
    assert {line.split()[0] for line in text.splitlines()[1:]} == refs
    code, text = await shell("ls", "--json")
    assert {state["ref"] for state in json.loads(text)} == refs
    assert (await shell("ls", "--session", "none"))[1].splitlines()[0].startswith("REF")


async def test_a_state_goes_to_a_file_and_comes_back(engine, shell, tmp_path):
    ref = await make(engine)
    file = tmp_path / "state.safetensors"
    code, text = await shell("export", ref, file)
    assert code == 0 and f"{file.stat().st_size} bytes" in text
    code, made = await shell("import", file, "--name", "copy", "--ttl", "60")
    assert (code, made) == (0, "copy")
    code, text = await shell("show", "copy")
    assert json.loads(text)["finish_reason"] == "import"
    assert (await shell("export", ref, file))[0] == 1
    assert file.stat().st_size > 0


async def test_an_export_that_fails_leaves_no_file(shell, tmp_path, capsys):
    file = tmp_path / "state.safetensors"
    assert (await shell("export", "gone", file))[0] == 1
    assert not file.exists()
    assert "there is no state 'gone' (state_not_found)" in capsys.readouterr().err


async def test_forks_make_a_tree_and_are_removed(engine, shell):
    ref = await make(engine)
    code, fork = await shell("fork", ref)
    assert await shell("fork", fork, "--name", "branch") == (0, "branch")
    tree = (await shell("tree"))[1].splitlines()
    assert [line.lstrip("└─ ").split()[0] for line in tree] == [ref, fork, "branch"]
    code, text = await shell("rm", fork, "branch")
    assert (code, text.count("is deleted")) == (0, 2)
    assert "which is gone" not in (await shell("tree"))[1]
    assert (await shell("rm", fork))[0] == 1


async def test_a_ref_is_never_read_as_a_path_or_a_query(engine, shell):
    ref = await make(engine)
    for odd in ("?all=true", "../states?all=true", f"x/../{ref}", ""):
        assert (await shell("rm", odd))[0] == 1
    assert json.loads((await shell("ls", "--json"))[1])[0]["ref"] == ref


async def test_forget_erases_what_was_named(engine, shell):
    await make(engine)
    assert (await shell("forget", "--session", "s"))[1] == "session s is erased: 0 states"
    assert (await shell("forget", "--all"))[1] == "everything is erased: 1 states"
    with pytest.raises(SystemExit):
        await shell("forget")


@pytest.mark.parametrize(
    "answer", [httpx.Response(502, text="<html>"), httpx.Response(404, json={"detail": "x"})]
)
async def test_an_endpoint_of_something_else_is_said(answer, capsys):
    http = httpx.AsyncClient(
        transport=httpx.MockTransport(lambda request: answer), base_url="http://x"
    )
    parser = argparse.ArgumentParser()
    arguments.add_arguments(parser)
    setting = command.Setting(StatesClient(http), print, lambda: 0.0)
    assert await command.execute(parser.parse_args(["ls"]), setting) == 1
    assert f"answered {answer.status_code}" in capsys.readouterr().err


def test_the_command_is_part_of_rwkv_server(monkeypatch, capsys):
    monkeypatch.delenv("RWKV_ENDPOINT", raising=False)
    assert main(["state", "ls"]) == 64
    assert "RWKV_ENDPOINT" in capsys.readouterr().err
    assert main(["state", "--endpoint", "http://127.0.0.1:1", "ls"]) == 69
    assert capsys.readouterr().err.startswith("rwkv-server state: the endpoint can't be reached")
