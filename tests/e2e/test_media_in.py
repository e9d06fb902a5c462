"""Attachments of a user's message, through a real gateway: what the model is asked, what the history keeps."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from agui_adapter.demo.gateway import Gateway
from tests.clients import VERSIONS, Version, node, run_agent
from tests.e2e.helpers import Chat, GatedModel, call, script, unique
from tests.e2e.media import (
    asked,
    chunked,
    data_url_of,
    images,
    linked,
    part,
    png,
    reloaded,
    say,
    talk,
    text,
    wav,
    web,
    words,
)

RED, BLUE = png((255, 0, 0)), png((0, 0, 255))


@pytest.fixture(scope="module")
def seeing(model: GatedModel) -> Iterator[Gateway]:
    """A gateway whose model sees images, and that may fetch from this machine."""
    config = {
        "model": {"supports_vision": True},
        "security": {"allow_private_urls": True},
    }
    agui = {"max_attachment_bytes": 100_000, "max_attachments": 3, "max_body_bytes": 1_000_000}
    env = {"HERMES_LOCAL_STT_COMMAND": "printf 'spoken words' > {output_dir}/heard.txt"}
    with Gateway(model, toolsets=["terminal", "file"], config=config, agui=agui, env=env) as running:
        yield running


def _script(say: str, answer: str = "I see.") -> dict[str, Any]:
    return text(script({"text": answer}, say=say))


def test_an_image_reaches_a_model_that_sees_as_an_image(seeing: Gateway, model: GatedModel) -> None:
    chat, mark = Chat(seeing), unique("look")
    say(chat, _script(mark), part("image", RED, "image/png", "red.png")).succeeded()
    assert images(asked(model, mark)) == [RED]
    assert chat.messages[-1]["content"] == "I see."


def test_an_image_alone_is_a_message(seeing: Gateway, model: GatedModel) -> None:
    chat = Chat(seeing)
    run = say(chat, part("image", BLUE, "image/png")).succeeded()
    assert run.text()
    assert images(asked(model, "What do you see in this image?")) == [BLUE]
    assert [message["role"] for message in talk(chat.messages)] == ["user", "assistant"]


def test_several_parts_keep_their_order(seeing: Gateway, model: GatedModel) -> None:
    chat, mark = Chat(seeing), unique("order")
    say(
        chat,
        text("Before"),
        part("image", RED, "image/png", "red.png"),
        text("between"),
        part("image", BLUE, "image/png", "blue.png"),
        _script(mark),
    ).succeeded()
    content = asked(model, mark)
    assert images(content) == [RED, BLUE]
    assert words(content).startswith("Before\n[attachment 1: red.png]\nbetween\n[attachment 2: blue.png]\n{")


def test_the_old_binary_part_is_an_image(seeing: Gateway, model: GatedModel) -> None:
    chat, mark = Chat(seeing, version=None), unique("old")
    old = {"type": "binary", "mimeType": "image/png", "data": base64.b64encode(RED).decode(), "filename": "old.png"}
    say(chat, _script(mark), old).succeeded()
    assert images(asked(model, mark)) == [RED]
    kept = reloaded(chat)[0]["content"][1]
    assert (kept["type"], kept["metadata"]) == ("image", {"filename": "old.png"})


def test_the_history_has_the_message_as_it_was_sent_with_addresses_for_data(
    make_gateway: Callable[..., Gateway], model: GatedModel
) -> None:
    gateway = make_gateway(toolsets=["file"], config={"model": {"supports_vision": True}})
    chat, mark = Chat(gateway), unique("keep")
    sent = part("image", RED, "image/png", "red.png", part_id="part-1")
    elsewhere = {"type": "image", "id": "part-2", "source": {"type": "file", "value": "file-abc", "provider": "openai"}}
    run = say(chat, _script(mark), sent, elsewhere).succeeded()
    assert run.notices() == [
        "An image was left out: it is a provider's file handle, which only that provider can read."
    ]
    for _ in range(2):
        user, answer = talk(reloaded(chat))
        assert user["id"] == chat.messages[0]["id"]
        kept = user["content"]
        assert [kept[0], kept[2]] == [chat.messages[0]["content"][0], elsewhere]
        assert {**kept[1], "source": None} == {**sent, "source": None}
        source = kept[1]["source"]
        assert (source["type"], source["mimeType"]) == ("url", "image/png")
        fetched = httpx.get(source["value"])  # signed: a page's <img> sends no key
        assert (fetched.status_code, fetched.content, fetched.headers["content-type"]) == (200, RED, "image/png")
        assert answer["content"] == "I see."
        gateway.stop()
        gateway.start()
    assert base64.b64encode(RED)[:40] not in data_url_of(gateway)

    # The client came back, and asks for another answer to what it got: the image comes from our own store.
    model.clear()
    chat.messages = talk(reloaded(chat))[:1]
    again = chat.keep(chat.send().finish()).succeeded()
    assert images(asked(model, mark)) == [RED]
    assert [value["name"] for value in again.of("CUSTOM")][:1] == ["hermes.rewound"]


def test_a_later_run_goes_on_and_a_snapshot_brings_no_data(seeing: Gateway, model: GatedModel) -> None:
    chat = Chat(seeing)
    say(chat, _script(unique("a")), part("image", RED, "image/png")).succeeded()
    path = seeing.work_dir / f"{unique('f')}.txt"
    path.write_text("x", "utf-8")
    # A tag in small letters is streamed and then corrected by a snapshot.
    run = say(chat, text(script({"text": f"So.\nmedia:{path}"}))).succeeded()
    assert len(run.of("MESSAGES_SNAPSHOT")) == 1
    for snapshot in run.of("MESSAGES_SNAPSHOT"):
        assert base64.b64encode(RED).decode() not in str(snapshot)
    later = chat.say(script({"text": "Go on."})).succeeded()
    assert later.of("MESSAGES_SNAPSHOT") == []  # the client's messages and the history's are the same


def test_a_model_without_eyes_gets_a_description(make_gateway: Callable[..., Gateway], model: GatedModel) -> None:
    vision = {"provider": "custom", "base_url": model.url, "model": "scripted-1", "api_key": "sk-local-dummy-0000"}
    gateway = make_gateway(toolsets=["file"], config={"auxiliary": {"vision": vision}})
    chat, mark = Chat(gateway), unique("blind")
    say(chat, _script(mark), part("image", RED, "image/png")).succeeded()
    content = asked(model, mark)
    assert images(content) == []
    assert "[The user sent an image~ Here's what I can see:" in words(content)
    assert images(asked(model, "Describe everything visible")) == [RED]


def test_an_image_that_nobody_can_describe_is_told(gateway: Gateway, model: GatedModel) -> None:
    chat, mark = Chat(gateway), unique("unseen")
    run = say(chat, _script(mark), part("image", b"\x89PNG\r\n\x1a\n" + bytes(40), "image/png")).succeeded()
    if "Here's what I can see" not in words(asked(model, mark)):
        assert any("cannot see images" in notice for notice in run.notices())


def test_sound_is_transcribed(seeing: Gateway, model: GatedModel) -> None:
    chat, mark = Chat(seeing), unique("heard")
    run = say(chat, _script(mark), part("audio", wav(), "audio/wav", "voice.wav")).succeeded()
    assert '"spoken words"' in words(asked(model, mark))
    assert any("spoken words" in notice for notice in run.notices())  # Hermes echoes what it heard


def test_sound_beside_a_document_is_transcribed_too(seeing: Gateway, model: GatedModel) -> None:
    chat, mark = Chat(seeing), unique("both")
    pdf = part("document", b"%PDF-1.7 \xff\xfe", "application/pdf", "r.pdf")
    say(chat, _script(mark), pdf, part("audio", wav(), "audio/x-wav")).succeeded()
    asked_for = words(asked(model, mark))
    assert '"spoken words"' in asked_for
    assert "[The user sent a document: 'r.pdf'." in asked_for


def test_sound_without_speech_to_text_is_told(gateway: Gateway, model: GatedModel) -> None:
    chat, mark = Chat(gateway), unique("deaf")
    run = say(chat, _script(mark), part("audio", wav(), "audio/wav")).succeeded()
    assert "[voice message could not be transcribed]" in words(asked(model, mark))
    assert any("could not be transcribed" in notice for notice in run.notices())


def test_documents_are_files_that_the_agent_can_open(seeing: Gateway, model: GatedModel) -> None:
    chat, mark, secret = Chat(seeing), unique("doc"), unique("secret")
    folder = seeing.home / "cache" / "documents"
    opens = {"tools": [call("terminal", {"command": f"cat {folder}/*_{mark}.bin"})]}
    binary = part("document", secret.encode() + b"\xff\0", "application/octet-stream", f"../../{mark}.bin")
    notes = part("document", b"name;value\n", "text/csv", "t.csv")
    run = say(chat, text(script(opens, {"text": "Read."}, say=mark)), binary, notes).succeeded()
    content = words(asked(model, mark))
    assert "[Content of t.csv]:\nname;value" in content
    assert f"[The user sent a document: '{mark}.bin'. It is saved at: {folder}/doc_" in content
    (result,) = run.results().values()
    assert secret in result


def test_a_video_is_a_file_that_the_agent_is_told_of(seeing: Gateway, model: GatedModel) -> None:
    chat, mark = Chat(seeing), unique("film")
    say(chat, _script(mark), part("video", b"\0\0\0\x18ftypmp42" + bytes(50), "video/mp4", "film.mp4")).succeeded()
    assert "[The user sent a video attachment: " in words(asked(model, mark))


def test_what_cannot_be_used_is_left_out_and_told_to_both(seeing: Gateway, model: GatedModel) -> None:
    wrong = {
        "its data is not base64": part("image", "&&&", "image/png", "a.png"),
        "it is empty": part("document", "", "text/plain", "b.txt"),
        "it is not an image but text/html": part("image", b"<!doctype html><script>", "image/png", "c.png"),
        "it is larger than 100000 bytes": part("document", bytes(100_001), "application/zip", "d.zip"),
        "its address is not allowed": linked("image", "http://169.254.169.254/latest/meta-data/"),
        "its address is not allowed ": linked("document", "file:///etc/passwd"),
    }
    for why, bad in wrong.items():
        chat, mark = Chat(seeing), unique("bad")
        run = say(chat, _script(mark), bad).succeeded()
        assert [notice.endswith(f"was left out: {why.strip()}.") for notice in run.notices()] == [True], run.notices()
        assert run.notices()[0] in words(asked(model, mark))


def test_a_message_of_nothing_usable_still_runs(seeing: Gateway, model: GatedModel) -> None:
    chat = Chat(seeing)
    run = say(chat, part("image", "AAAA", "image/png", "broken.png")).succeeded()
    assert run.text()
    assert asked(model, "An image (broken.png) was left out: it is not an image.")


def test_more_attachments_than_allowed_are_left_out(seeing: Gateway, model: GatedModel) -> None:
    chat, mark = Chat(seeing), unique("many")
    run = say(chat, _script(mark), *[part("image", RED, "image/png") for _ in range(5)]).succeeded()
    assert len(images(asked(model, mark))) == 3
    assert run.notices() == ["An image was left out: at most 3 attachments of a message are read."] * 2


def test_vector_graphics_become_files(seeing: Gateway, model: GatedModel) -> None:
    chat, mark = Chat(seeing), unique("svg")
    svg = b'<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"/>'
    run = say(chat, _script(mark), part("image", svg, "image/png", "x.png")).succeeded()
    assert images(asked(model, mark)) == []
    assert any("the agent has it as a file" in notice for notice in run.notices())
    kept = httpx.get(reloaded(chat)[0]["content"][1]["source"]["value"])
    assert kept.headers["content-disposition"].startswith("attachment;")
    assert kept.headers["content-security-policy"] == "sandbox; default-src 'none'"


def test_megabytes_are_taken_by_default(gateway: Gateway, model: GatedModel) -> None:
    """aiohttp's own limit is 1 MiB."""
    chat, mark, data = Chat(gateway), unique("big"), bytes(range(256)) * 12_000
    run = say(chat, _script(mark), part("document", data, "application/octet-stream", f"{mark}.bin")).succeeded()
    assert not run.notices()
    (kept,) = (gateway.home / "cache" / "documents").glob(f"*_{mark}.bin")
    assert kept.read_bytes() == data and str(kept) in words(asked(model, mark))


def test_a_body_beyond_the_limit_is_413(seeing: Gateway) -> None:
    chat = Chat(seeing)
    problem = say(chat, _script("x"), part("document", bytes(900_000), "application/zip")).problem()
    assert (problem["status"], problem["code"]) == (413, "body_too_large")
    assert "1000000" in problem["detail"]


def test_addresses_are_fetched(seeing: Gateway, model: GatedModel) -> None:
    pages = {
        "/red.png": (200, {"Content-Type": "image/png"}, RED),
        "/to-red": (302, {"Location": "/red.png"}, b""),
        "/a/report": (200, {"Content-Type": "text/plain; charset=utf-8"}, b"the report"),
        "/to-metadata": (302, {"Location": "http://169.254.169.254/"}, b""),
        "/loop": (302, {"Location": "/loop"}, b""),
        "/large": (200, {"Content-Type": "image/png"}, RED + bytes(200_000)),
        "/endless": (200, {"Content-Type": "image/png", "Transfer-Encoding": "chunked"}, chunked(RED + bytes(200_000))),
        "/page": (200, {"Content-Type": "text/html"}, b"<html>no picture"),
    }
    with web(pages) as (address, seen):
        chat, mark = Chat(seeing), unique("web")
        parts = [linked("image", f"{address}/to-red"), linked("document", f"{address}/a/report")]
        say(chat, _script(mark), *parts).succeeded()
        content = asked(model, mark)
        assert images(content) == [RED]
        assert "[Content of report]:\nthe report" in words(content)
        assert reloaded(chat)[0]["content"][1:] == parts  # as the client sent it
        reasons = {
            "/to-metadata": "its address is not allowed",
            "/loop": "its address redirects too often",
            "/large": "it is larger than 100000 bytes",
            "/endless": "it is larger than 100000 bytes",
            "/page": "it is not an image but text/html",
            "/missing": "its server answered 404",
        }
        for path, why in reasons.items():
            run = say(Chat(seeing), _script(unique("no")), linked("image", address + path)).succeeded()
            (notice,) = run.notices()
            assert notice.endswith(f"was left out: {why}."), notice
        assert seen.count("/to-red") == 1


def test_by_default_nothing_is_fetched_from_this_machine(gateway: Gateway) -> None:
    with web({"/red.png": (200, {"Content-Type": "image/png"}, RED)}) as (address, seen):
        run = say(Chat(gateway), _script(unique("ssrf")), linked("image", f"{address}/red.png")).succeeded()
    assert seen == []
    assert [notice.endswith("its address is not allowed.") for notice in run.notices()] == [True]


@pytest.mark.node
@pytest.mark.skipif(node() is None, reason="needs Node")
@pytest.mark.parametrize("version", VERSIONS)
def test_the_official_clients_send_and_keep_attachments(seeing: Gateway, model: GatedModel, version: Version) -> None:
    chat, mark = Chat(seeing), unique("client")
    path = seeing.work_dir / f"{unique('f')}.txt"
    path.write_text("x", "utf-8")
    first = [
        _script(mark),
        part("image", RED, "image/png", "red.png"),
        part("document", b"words", "text/plain", "w.txt"),
    ]
    # The third answer is corrected by a snapshot, which restates the message with parts.
    runs = [
        {"messages": [{"id": unique("u"), "role": "user", "content": first}]},
        {
            "messages": [
                {"id": unique("u"), "role": "user", "content": script({"text": "Please REPLACE: [[as_document]]"})}
            ]
        },
        {
            "messages": [
                {
                    "id": unique("u"),
                    "role": "user",
                    "content": script({"text": f"Here.\nmedia:{path}"}),
                }
            ]
        },
        {"messages": [{"id": unique("u"), "role": "user", "content": script({"text": "Done."})}]},
    ]
    records = run_agent(version, f"{seeing.url}/agui", chat.thread, runs)
    for record in records:
        assert (record.failed, record.warnings) == (None, [])
    assert images(asked(model, mark, first=True)) == [RED]
    assert talk(records[-1].messages) == talk(reloaded(chat))
