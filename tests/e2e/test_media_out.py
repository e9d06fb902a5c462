"""What the agent sends, through a real gateway: shown, served to its owner, the same after a reload and a restart."""

from __future__ import annotations

import re
import shlex
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from agui_adapter.demo.gateway import Gateway
from agui_adapter.sse import SseParser
from tests.clients import VERSIONS, Version, node, run_agent
from tests.e2e.helpers import Chat, GatedModel, Run, call, script, unique, wait_until
from tests.e2e.media import png, reloaded, talk

KEY = "an-operator-key-of-32-characters"
LINK = re.compile(r"(!?)\[([^\]]*)\]\((\S+)\)")


@pytest.fixture(scope="module")
def sending(model: GatedModel) -> Iterator[Gateway]:
    """A gateway with a key: callers on loopback without it are another principal."""
    with Gateway(model, toolsets=["terminal", "file"], env={"AGUI_API_KEY": KEY}) as running:
        yield running


def _file(gateway: Gateway, data: bytes, extension: str = ".txt") -> Path:
    path = gateway.work_dir / (unique("file") + extension)
    path.write_bytes(data)
    return path


def _ask(chat: Chat, answer: str, *steps: dict[str, Any]) -> Run:
    return chat.say(script(*steps, {"text": answer})).succeeded()


def _links(run: Run) -> list[tuple[bool, str, str]]:
    """(is a picture, name, address) of each attachment's message, which comes in one piece."""
    found = [LINK.fullmatch(event["delta"].partition("\n")[0]) for event in run.of("TEXT_MESSAGE_CONTENT")]
    return [(bool(one[1]), one[2], one[3]) for one in found if one is not None and "/files/" in one[3]]


def _no_tag(run: Run) -> None:
    shown = [*run.texts(), *(str(event["messages"]) for event in run.of("MESSAGES_SNAPSHOT"))]
    answers = [text for text in shown if "script" not in text]
    assert not any("MEDIA:" in text or "[[as_" in text for text in answers), answers


def test_a_tag_becomes_a_picture(sending: Gateway) -> None:
    chat, path = Chat(sending), _file(sending, png(), ".png")
    run = _ask(chat, f"Here is the chart.\nMEDIA:{path}\nDo you like it?")
    assert run.of("MESSAGES_SNAPSHOT") == []  # nothing had to be corrected: the tag was held back
    _no_tag(run)
    assert " ".join(run.texts()[0].split()) == "Here is the chart. Do you like it?"
    ((picture, name, address),) = _links(run)
    assert (picture, name) == (True, path.name.replace("_", "\\_"))
    (activity,) = run.of("ACTIVITY_SNAPSHOT")
    assert activity["activityType"] == "hermes.attachment"
    assert activity["content"] == {
        "url": address,
        "name": path.name,
        "mimeType": "image/png",
        "size": len(png()),
        "kind": "image",
        "caption": "",
        "messageId": chat.messages[-1]["id"],
    }
    served = httpx.get(address)
    assert (served.status_code, served.content, served.headers["content-type"]) == (200, png(), "image/png")
    assert talk(reloaded(chat)) == talk(chat.messages)
    shown = [message for message in reloaded(chat) if message["role"] == "activity"]
    assert [(one["id"], one["content"]) for one in shown] == [(activity["messageId"], activity["content"])]
    assert chat.say(script({"text": "Next."})).of("MESSAGES_SNAPSHOT") == []  # both know the same messages


@pytest.mark.parametrize(
    "answer",
    ["MEDIA:{0}", "[[as_document]]\nMEDIA:{0}", 'Look: MEDIA:"{0}"', "Look:\nmedia:{0}\nYes", "A MEDIA:{0} B"],
)
def test_no_form_of_a_tag_stays(sending: Gateway, answer: str) -> None:
    chat, path = Chat(sending), _file(sending, b"%PDF-1.7 words", ".pdf")
    run = _ask(chat, answer.format(path))
    ((picture, name, address),) = _links(run)
    assert (picture, name) == (False, path.name)
    held = talk(chat.messages)[1:]
    assert str(path) not in str(held)
    assert httpx.get(address).content == b"%PDF-1.7 words"
    assert talk(reloaded(chat))[1:] == held


def test_a_file_with_an_unknown_extension(sending: Gateway) -> None:
    chat, path = Chat(sending), _file(sending, b"all:\n", ".weird")
    run = _ask(chat, f"Yours:\nMEDIA:{path}")
    ((_, _, address),) = _links(run)
    path.unlink()  # Hermes's own rule for such tags looks whether the file is there
    assert httpx.get(address).content == b"all:\n"
    assert talk(reloaded(chat)) == talk(chat.messages)
    assert talk(chat.messages)[1]["content"] == "Yours:"


def test_several_files_and_what_the_agent_made_itself(sending: Gateway) -> None:
    chat, picture = Chat(sending), _file(sending, png(), ".png")
    made = sending.work_dir / f"{unique('made')}.csv"
    step = {"tools": [call("terminal", {"command": f"printf 'a,b' > {shlex.quote(str(made))}"})]}
    run = _ask(chat, f"Both:\nMEDIA:{picture}\nMEDIA:{made}", step)
    assert sorted(name.replace("\\", "") for _, name, _ in _links(run)) == sorted([picture.name, made.name])
    assert {event["content"]["kind"] for event in run.of("ACTIVITY_SNAPSHOT")} == {"image", "document"}
    assert talk(reloaded(chat)) == talk(chat.messages)


def test_sound_and_film(sending: Gateway) -> None:
    chat = Chat(sending)
    sound, film = _file(sending, b"OggS" + bytes(60), ".ogg"), _file(sending, bytes(64), ".mp4")
    run = _ask(chat, f"MEDIA:{sound}\nMEDIA:{film}")
    kinds = {event["content"]["kind"]: event["content"]["mimeType"] for event in run.of("ACTIVITY_SNAPSHOT")}
    assert kinds == {"audio": "audio/ogg", "video": "video/mp4"}
    assert talk(reloaded(chat)) == talk(chat.messages)


def test_a_path_in_the_text_is_delivered_and_stays_in_the_text(sending: Gateway) -> None:
    chat, path = Chat(sending), _file(sending, b"a;b", ".csv")
    run = _ask(chat, f"I wrote {path} for you.")
    assert [name for _, name, _ in _links(run)] == [path.name]
    assert talk(chat.messages)[1]["content"] == f"I wrote {path} for you."
    assert talk(reloaded(chat)) == talk(chat.messages)


def test_a_picture_on_the_web_stays_in_the_text(sending: Gateway) -> None:
    chat = Chat(sending)
    answer = "A cat: ![cat](https://web.test/cat.png) and more."
    run = _ask(chat, answer)
    assert run.of("ACTIVITY_SNAPSHOT") == []
    assert chat.messages[-1]["content"] == answer
    assert talk(reloaded(chat)) == talk(chat.messages)


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "/etc/ssl/secret.pem", "/nowhere/missing.png", "{home}/.env", "{home}/agui.db"]
)
def test_what_may_not_be_sent_is_not_and_the_person_is_told(sending: Gateway, path: str) -> None:
    sending.home.joinpath(".env").touch()
    chat, path = Chat(sending), path.format(home=sending.home)
    run = _ask(chat, f"There:\nMEDIA:{path}")
    assert _links(run) == []
    name = Path(path).name.lstrip(".")
    assert run.notices() == [f"The agent wanted to send {name}, but it is not there, or may not be sent."]
    assert talk(chat.messages)[1]["content"].strip() == "There:"
    assert talk(reloaded(chat)) == talk(chat.messages)


def test_examples_in_code_are_no_tags(sending: Gateway) -> None:
    chat, path = Chat(sending), _file(sending, b"x")
    answer = f"Write it like this:\n\n```\nMEDIA:{path}\n```\n\nor `MEDIA:{path}`."
    run = _ask(chat, answer)
    assert _links(run) == []
    assert talk(chat.messages)[1]["content"] == answer
    assert talk(reloaded(chat)) == talk(chat.messages)


def test_the_copy_is_what_was_sent(sending: Gateway) -> None:
    chat, path = Chat(sending), _file(sending, b"first")
    ((_, _, address),) = _links(_ask(chat, f"MEDIA:{path}"))
    path.write_bytes(b"second")
    assert httpx.get(address).content == b"first"
    path.unlink()
    assert httpx.get(address).content == b"first"


def test_only_its_owner_gets_a_file(sending: Gateway) -> None:
    chat, path = Chat(sending, key=KEY), _file(sending, b"mine")
    ((_, _, address),) = _links(_ask(chat, f"MEDIA:{path}"))
    bare, _, query = address.partition("?")
    mine = {"Authorization": f"Bearer {KEY}"}
    assert httpx.get(bare, headers=mine).content == b"mine"
    assert httpx.get(address).content == b"mine"  # a link needs no header
    assert KEY not in address
    for wrong in (bare, f"{bare}?{query[:-1]}x", f"{bare}?expires=9999999999&signature={query.rpartition('=')[2]}"):
        other = httpx.get(wrong)  # loopback without a key: another principal
        assert (other.status_code, other.json()["code"]) == (404, "no_such_file")
    assert httpx.get(bare, headers={"Authorization": "Bearer wrong-key-of-some-length"}).status_code == 401
    assert httpx.get(f"{sending.url}/files/{'0' * 32}", headers=mine).status_code == 404
    assert httpx.get(f"{sending.url}/files/..%2Fagui.db", headers=mine).status_code == 404


def test_how_a_file_is_served(sending: Gateway) -> None:
    chat = Chat(sending)
    page = _file(sending, b"<html><script>alert(1)</script>", ".html")
    words = _file(sending, b"0123456789")
    links = _links(_ask(chat, f"MEDIA:{page}\nMEDIA:{words}"))
    by_name = {name: address for _, name, address in links}
    served = httpx.get(by_name[page.name])
    assert served.headers["content-disposition"].startswith(f'attachment; filename="{page.name}"')
    for address in by_name.values():
        headers = httpx.get(address).headers
        assert headers["content-security-policy"] == "sandbox; default-src 'none'"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
    address = by_name[words.name]
    whole = httpx.get(address)
    assert whole.headers["content-disposition"].startswith("inline;")
    assert (whole.headers["content-length"], whole.headers["accept-ranges"]) == ("10", "bytes")
    head = httpx.head(address)
    assert (head.status_code, head.headers["content-length"], head.content) == (200, "10", b"")
    for wanted, content in (("bytes=2-4", b"234"), ("bytes=-3", b"789"), ("bytes=8-", b"89")):
        piece = httpx.get(address, headers={"Range": wanted})
        assert (piece.status_code, piece.content) == (206, content)
    assert piece.headers["content-range"] == "bytes 8-9/10"
    assert httpx.get(address, headers={"Range": "bytes=20-"}).status_code == 416
    assert httpx.get(address, headers={"If-None-Match": whole.headers["etag"]}).status_code == 304
    assert httpx.post(address).status_code == 405


def test_a_restart_changes_nothing(make_gateway: Callable[..., Gateway]) -> None:
    gateway = make_gateway()
    chat, path = Chat(gateway), _file(gateway, png(), ".png")
    ((_, _, address),) = _links(_ask(chat, f"Look:\nMEDIA:{path}"))
    gateway.stop()
    path.unlink()
    gateway.start()
    assert httpx.get(address).content == png()
    assert talk(reloaded(chat)) == talk(chat.messages)


def test_files_expire_and_the_conversation_still_shows_them(make_gateway: Callable[..., Gateway]) -> None:
    gateway = make_gateway(agui={"file_ttl_seconds": 2, "public_url": "https://hermes.example/agent"})
    chat, path = Chat(gateway), _file(gateway, b"soon gone")
    ((_, _, address),) = _links(_ask(chat, f"MEDIA:{path}"))
    assert address.startswith("https://hermes.example/agent/files/")
    here = address.replace("https://hermes.example/agent", gateway.url)
    gone = wait_until(lambda: (answer := httpx.get(here)).status_code != 200 and answer, "the file expired")
    assert (gone.status_code, gone.json()["code"]) == (410, "file_expired")
    assert talk(reloaded(chat)) == talk(chat.messages)


def test_a_file_of_a_turn_that_is_taken_back_is_no_longer_shown(sending: Gateway) -> None:
    chat, path = Chat(sending), _file(sending, b"x")
    chat.say(script({"text": "First."})).succeeded()
    _ask(chat, f"MEDIA:{path}")
    chat.messages = chat.messages[:2]
    chat.say(script({"text": "Instead."})).succeeded()
    assert talk(reloaded(chat)) == talk(chat.messages)
    assert "/files/" not in str(reloaded(chat))


def test_a_deleted_thread_takes_its_files_with_it(sending: Gateway) -> None:
    chat, path = Chat(sending), _file(sending, b"x")
    ((_, _, address),) = _links(_ask(chat, f"MEDIA:{path}"))
    assert httpx.delete(f"{sending.url}/agui/threads/{chat.thread}", timeout=30).status_code == 200
    assert httpx.get(address).status_code == 404


def test_a_background_result_brings_its_files(sending: Gateway) -> None:
    chat, path = Chat(sending), _file(sending, b"from beside")
    chat.say(script({"text": "Here."})).succeeded()
    chat.say("/background " + script({"text": f"Finished.\nMEDIA:{path}"})).succeeded()

    def link() -> str:
        found = [LINK.search(str(message.get("content"))) for message in reloaded(chat)]
        return next((one[3] for one in found if one is not None and "/files/" in one[3]), "")

    address = wait_until(link, "the file of the background task")
    assert httpx.get(address).content == b"from beside"


def test_a_reader_who_joins_late_sees_the_file(sending: Gateway) -> None:
    chat, path = Chat(sending), _file(sending, b"x")
    run = _ask(chat, f"Look.\nMEDIA:{path}")
    turn = run.frames[0].id.rpartition(".")[0]
    parser, kinds = SseParser(), []
    with httpx.stream(
        "GET", f"{sending.url}/agui/threads/{chat.thread}/events?after={turn}.0&once=1", timeout=30
    ) as feed:
        for piece in feed.iter_raw():
            kinds += [frame.data.partition('"type":"')[2].partition('"')[0] for frame in parser.feed(piece)]
    assert kinds == run.types[1:] if kinds[0] != "RUN_STARTED" else kinds == run.types


@pytest.mark.node
@pytest.mark.skipif(node() is None, reason="needs Node")
@pytest.mark.parametrize("version", VERSIONS)
def test_the_official_clients_hold_what_a_reload_shows(sending: Gateway, version: Version) -> None:
    chat = Chat(sending)
    picture, other = _file(sending, png(), ".png"), _file(sending, b"x", ".pdf")
    answers = (f"Look:\nMEDIA:{picture}\nGood?", f"media:{other}", "Done.")
    runs = [{"messages": [{"id": unique("u"), "role": "user", "content": script({"text": text})}]} for text in answers]
    records = run_agent(version, f"{sending.url}/agui", chat.thread, runs)
    for record in records:
        assert (record.failed, record.warnings) == (None, [])
    assert talk(records[-1].messages) == talk(reloaded(chat))
    assert [message["activityType"] for message in records[-1].messages if message["role"] == "activity"] == [
        "hermes.attachment"
    ] * 2


def test_the_tag_is_never_shown_while_it_streams(sending: Gateway, model: GatedModel) -> None:
    """The model stops in the middle of the tag: what the client has by then holds nothing of it."""
    chat, path, gate = Chat(sending), _file(sending, b"x"), unique("gate")
    run = chat.start(script({"text": f"All done. MEDIA:{path.parent}/{{gate:{gate}}} {path.name}"}))
    wait_until(lambda: model.reached(gate), "the model is in the middle")
    run.wait_text("All done.")
    threading.Event().wait(0.3)  # whatever is on its way may arrive
    assert "MEDIA" not in run.text()
    model.open_gate(gate)
    chat.keep(run.finish())
