"""`slideway serve` under clients that leave, stall, crowd and lie; its page; its document; other clients."""
import json
import os
import random
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.request

import openai
import pytest

from api_server import GGUF, ROOT, Server, make_adapter, make_model
from browser import CHROMIUM, Browser

pytestmark = pytest.mark.skipif(not GGUF.exists(), reason="needs SmolLM2 in .cache/models")
TOOLS = ROOT / ".cache/api-tools"
OLD_OPENAI = ROOT / ".cache/openai-1"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("server")
    make_model(folder / "model")
    for seed in range(10):
        make_adapter(folder / "model", folder / "adapters" / f"a{seed}", seed)
    return folder


@pytest.fixture(scope="module")
def server(folder):
    with Server(folder / "model", "--adapters", folder / "adapters", "--max-num-seqs", 4, "--write-timeout", 2,
                "--disable-access-log") as server:
        yield server
        assert server.stop() == 0, "".join(server.log)


def client_of(server, **options):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, **options)


def status_of(server):
    with urllib.request.urlopen(server.url + "/status", timeout=10) as reply:
        return json.load(reply)


def at_rest(server):
    """Waits until nothing runs, and says what is taken of the pool."""
    for _ in range(300):
        status = status_of(server)
        if status["running"] == status["waiting"] == 0:
            return status["pool"]["used"]
        time.sleep(0.1)
    raise AssertionError(f"something still runs: {status}")


def raw(server, body, path="/v1/completions", buffer=None):
    """A socket with a request sent on it."""
    host, port = server.url.removeprefix("http://").split(":")
    connection = socket.socket()
    if buffer:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    connection.connect((host, int(port)))
    data = json.dumps(body).encode()
    connection.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                       f"Content-Length: {len(data)}\r\n\r\n".encode() + data)
    return connection


LONG = {"max_tokens": 1900, "ignore_eos": True, "temperature": 0}


def test_a_hundred_clients_that_leave_leave_nothing_behind(server):
    before = at_rest(server)
    client = client_of(server)
    expected = client.completions.create(model="a1", prompt="x", max_tokens=600, temperature=0,
                                         extra_body={"ignore_eos": True}).choices[0].text
    watched = []
    undisturbed = threading.Thread(target=lambda: watched.append(client.completions.create(
        model="a1", prompt="x", max_tokens=600, temperature=0, extra_body={"ignore_eos": True}).choices[0].text))
    undisturbed.start()
    draw = random.Random(1)
    for i in range(100):
        kind = i % 4
        body = {**LONG, "model": f"a{draw.randrange(10)}", "prompt": "y " * draw.choice([1, 100]), "n": draw.choice([1, 2]),
                "stream": kind in (0, 3)}
        connection = raw(server, body)
        if kind == 0:  # while it streams
            assert connection.recv(1000).startswith(b"HTTP/1.1 200")
        elif kind == 1:  # while it waits or runs
            time.sleep(draw.random() * 0.02)
        connection.close()  # kinds 2 and 3: at once
    undisturbed.join()
    assert watched == [expected]
    assert at_rest(server) == before


def cancelled(server):
    with urllib.request.urlopen(server.url + "/metrics", timeout=10) as reply:
        return sum(float(line.rsplit(" ", 1)[1]) for line in reply.read().decode().splitlines()
                   if line.startswith('slideway_requests_total{finish="cancelled"'))


def test_a_reader_that_takes_nothing_is_cut_off(server):
    before, ended = at_rest(server), cancelled(server)
    connection = raw(server, {**LONG, "prompt": ["x"] * 40, "stream": True}, buffer=4096)
    for _ in range(300):  # it ends, though nobody reads it
        if cancelled(server) == ended + 1:
            break
        time.sleep(0.1)
    assert at_rest(server) == before and cancelled(server) == ended + 1
    connection.close()


def test_fifty_clients_load_unload_and_ask_on_the_same_names(server):
    stop, strange = time.monotonic() + 5, []
    client = client_of(server)
    texts = {}
    lock = threading.Lock()

    def note(path, text):
        with lock:
            texts.setdefault(path, set()).add(text)

    def post(path, body):
        request = urllib.request.Request(server.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=60) as reply:
                return reply.status
        except urllib.error.HTTPError as error:
            return error.code

    def work(seed):
        draw = random.Random(seed)
        while time.monotonic() < stop:
            i = draw.randrange(10)
            what = draw.randrange(4)
            try:
                if what == 0:
                    allowed, got = {200, 400}, post("/v1/load_lora_adapter", {"lora_name": f"s{i}", "lora_path": f"a{i}"})
                elif what == 1:
                    allowed, got = {200, 404}, post("/v1/unload_lora_adapter", {"lora_name": f"s{i}"})
                else:
                    answer = client.completions.create(model=f"s{i}", prompt="Once", max_tokens=6, temperature=0)
                    note(i, answer.choices[0].text)
                    continue
                if got not in allowed:
                    strange.append((what, got))
            except openai.NotFoundError:
                pass
            except Exception as error:
                strange.append(repr(error))

    before = at_rest(server)
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(50)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not strange, strange[:5]
    assert len(texts) == 10 and all(len(seen) == 1 for seen in texts.values()), texts
    assert len(set.union(*texts.values())) == 10
    assert at_rest(server) == before
    for i in range(10):
        post("/v1/unload_lora_adapter", {"lora_name": f"s{i}"})


def admin(server, what, **body):
    request = urllib.request.Request(f"{server.url}/v1/{what}_lora_adapter", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    urllib.request.urlopen(request, timeout=10).close()


def test_a_folder_that_appears_is_served_and_one_that_goes_is_not(server, folder):
    client = client_of(server)
    shutil.copytree(folder / "adapters" / "a3", folder / "adapters" / ".tmp-late")
    os.rename(folder / "adapters" / ".tmp-late", folder / "adapters" / "late")
    names = lambda: [card.id for card in client.models.list()]
    for _ in range(100):
        if "late" in names():
            break
        time.sleep(0.1)
    answer = client.completions.create(model="late", prompt="Once", temperature=0).choices[0].text
    assert answer == client.completions.create(model="a3", prompt="Once", temperature=0).choices[0].text
    admin(server, "unload", lora_name="late")
    time.sleep(5)  # two looks at the folder
    assert "late" not in names()
    admin(server, "load", lora_name="late", lora_path="late")
    assert "late" in names()
    admin(server, "unload", lora_name="late")
    shutil.rmtree(folder / "adapters" / "late")
    for _ in range(100):
        if "late" not in names():
            break
        time.sleep(0.1)
    with pytest.raises(openai.NotFoundError):
        client.completions.create(model="late", prompt="Once")


def test_a_folder_written_anew_answers_anew(server, folder):
    client = client_of(server)
    target = folder / "adapters" / "changing"
    shutil.copytree(folder / "adapters" / "a5", target)
    text = lambda name: client.completions.create(model=name, prompt="Once", temperature=0).choices[0].text

    def wait_for(expected):
        for _ in range(100):
            try:
                if text("changing") == expected:
                    return
            except openai.NotFoundError:
                pass
            time.sleep(0.1)
        raise AssertionError(f"never answered {expected!r}")

    wait_for(text("a5"))
    shutil.copy(folder / "adapters" / "a6" / "adapter_model.safetensors", target / "new")
    os.rename(target / "new", target / "adapter_model.safetensors")
    wait_for(text("a6"))
    shutil.rmtree(target)


def test_a_full_queue_is_a_429_that_says_when_to_come_again(folder):
    with Server(folder / "model", "--max-num-seqs", 1, "--max-waiting", 2) as server:
        connections = []
        for waiting in [0, 1, 2]:
            connections.append(raw(server, {**LONG, "prompt": "x"}))
            for _ in range(200):
                if status_of(server)["waiting"] >= waiting and status_of(server)["running"] == 1:
                    break
                time.sleep(0.01)
        with pytest.raises(openai.RateLimitError) as caught:
            client_of(server).completions.create(model="base", prompt="x")
        assert caught.value.code == "queue_full" and caught.value.response.headers["retry-after"] == "1"
        for connection in connections:
            connection.close()


def test_a_folder_that_is_no_adapter_is_a_400_with_the_reason(server, folder):
    bad = folder / "adapters" / "bad"
    shutil.copytree(folder / "adapters" / "a3", bad)
    (bad / "adapter_model.safetensors").write_bytes((32).to_bytes(8, "little") + b'{"__metadata__":{"format":"pt"}}')
    client = client_of(server)
    for _ in range(100):
        if "bad" in [card.id for card in client.models.list()]:
            break
        time.sleep(0.1)
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model="bad", prompt="Once")
    assert "tensor" in caught.value.message
    shutil.rmtree(bad)


def test_many_idle_streams_are_open_side_by_side(server):
    connections = [raw(server, {**LONG, "prompt": "x", "stream": True}) for _ in range(300)]
    started = client_of(server).models.list()  # others are served meanwhile
    assert started.data
    for connection in connections:
        connection.close()
    at_rest(server)


def test_metrics_speak_prometheus_and_the_gateways_names(server):
    client_of(server).completions.create(model="a2", prompt="Once")
    with urllib.request.urlopen(server.url + "/metrics", timeout=10) as reply:
        text = reply.read().decode()
    series = dict(line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#"))
    assert series['vllm:num_requests_running{model_name="base"}'] == "0"
    assert series['vllm:num_requests_waiting{model_name="base"}'] == "0"
    assert 0 <= float(series['vllm:kv_cache_usage_perc{model_name="base"}']) <= 1
    assert any(name.startswith('vllm:lora_requests_info{max_lora="4",running_lora_adapters="') for name in series)
    assert any(name.startswith("vllm:cache_config_info{block_size=") for name in series)
    assert float(series['slideway_requests_total{finish="length",model="a2",model_name="base"}']) >= 1
    assert float(series['slideway_requests_total{finish="cancelled",model="base",model_name="base"}']) >= 1


@pytest.mark.skipif(not TOOLS.exists(), reason="needs schemathesis in .cache/api-tools")
def test_schemathesis_finds_nothing_that_the_document_does_not_say(server, tmp_path):
    done = subprocess.run(
        [sys.executable, TOOLS / "bin/schemathesis", "run", server.url + "/openapi.json", "--phases", "coverage,fuzzing",
         "--checks", "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance",
         "--max-examples", "15", "--generation-deterministic", "--suppress-health-check", "all", "--no-color"],
        env={**os.environ, "PYTHONPATH": str(TOOLS)}, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]


@pytest.mark.skipif(not OLD_OPENAI.exists(), reason="needs an older openai in .cache/openai-1")
def test_an_older_openai_client_reads_everything(server):
    script = """
import sys, openai
assert openai.__version__.startswith("1."), openai.__version__
client = openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key="none", max_retries=0)
chat = dict(model="a1", messages=[{"role": "user", "content": "Hi"}], max_tokens=8, temperature=0)
whole = client.chat.completions.create(**chat).choices[0].message.content
chunks = list(client.chat.completions.create(**chat, stream=True, stream_options={"include_usage": True}))
assert "".join(c.choices[0].delta.content or "" for c in chunks[:-1]) == whole and chunks[-1].usage.completion_tokens == 8
assert [m.id for m in client.models.list()][0] == "base"
try:
    client.completions.create(model="nope", prompt="x")
except openai.NotFoundError as error:
    assert error.code == "model_not_found"
else:
    raise AssertionError
"""
    done = subprocess.run([sys.executable, "-c", script, server.url], env={**os.environ, "PYTHONPATH": str(OLD_OPENAI)},
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_tls_speaks_to_who_trusts_the_certificate(folder):
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate, "-days", "2",
                    "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    with Server(folder / "model", "--ssl-certfile", certificate, "--ssl-keyfile", key) as server:
        assert server.url.startswith("https://")
        context = ssl.create_default_context(cafile=str(certificate))
        with urllib.request.urlopen(server.url + "/v1/models", timeout=10, context=context) as reply:
            assert json.load(reply)["data"][0]["id"] == "base"
        with pytest.raises(urllib.error.URLError):
            urllib.request.urlopen(server.url + "/v1/models", timeout=10)
        body = json.dumps({"prompt": "x", "max_tokens": 300, "stream": True, "ignore_eos": True}).encode()
        request = urllib.request.Request(server.url + "/v1/completions", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=30, context=context) as reply:
            assert reply.read().endswith(b"data: [DONE]\n\n")
        # A client that leaves in the middle, and one that speaks no TLS at all.
        with urllib.request.urlopen(request, timeout=30, context=context) as reply:
            reply.read(100)
        plain = socket.create_connection(("127.0.0.1", int(server.url.rsplit(":", 1)[1])))
        plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert b"HTTP" not in plain.recv(1000)
        plain.close()
        assert server.stop() == 0


def test_systemd_is_told_when_it_is_ready_and_when_it_stops(folder):
    path = folder / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(path))
        manager.settimeout(30)
        with Server(folder / "model", environment={"NOTIFY_SOCKET": str(path)}) as server:
            assert manager.recv(100) == b"READY=1"
            assert server.stop() == 0
            assert manager.recv(100) == b"STOPPING=1"


@pytest.mark.parametrize("arguments, says", [
    (["--port", "99999"], "port"),
    (["--host", "nowhere.invalid"], "nowhere.invalid"),
    (["--adapters", "/nowhere"], "/nowhere"),
    (["--ssl-certfile", "/nowhere", "--ssl-keyfile", "/nowhere"], "/nowhere"),
    (["--ssl-certfile", "/nowhere"], "key"),
    (["--max-model-len", "999999"], "999999"),
    (["--dtype", "float8"], "float8"),
])
def test_what_cannot_be_served_is_said_before_anything_is(folder, arguments, says):
    with Server(folder / "model", *arguments, wait=False) as server:
        assert server.process.wait(30) in (1, 2)
        server.reader.join()
        assert says in "".join(server.log)


@pytest.mark.skipif(not CHROMIUM, reason="needs chromium")
def test_the_page_shows_the_server_and_asks_base_and_adapter(server, tmp_path):
    browser = Browser()
    try:
        browser.open(server.url + "/")
        browser.wait_for("document.querySelectorAll('#adapters tr').length == 10")
        assert "keys and values" in browser.wait_for("at('legend').textContent")
        browser.run("at('prompt').value = 'Hello'; at('adapter').value = 'a4'; at('form').requestSubmit(); 1")
        left, right = (browser.wait_for(f"at('{side}').textContent.length > 200 && at('{side}').textContent") for side in ("left", "right"))
        assert left[:100] != right[:100]
        for name, shown in [("base", left), ("a4", right)]:
            answer = client_of(server).chat.completions.create(
                model=name, messages=[{"role": "user", "content": "Hello"}], max_tokens=256, temperature=0)
            assert answer.choices[0].message.content.startswith(shown[:100])
        assert browser.run("at('trouble').hidden")
        browser.picture(tmp_path / "page.png")
        if keep := os.environ.get("SLIDEWAY_PICTURES"):
            shutil.copy(tmp_path / "page.png", keep)
    finally:
        browser.close()
