"""`slideway train` as users run it: the real program on a tiny model, killed, resumed, starved and fed bad files."""
import contextlib
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import subprocess
import time

import pytest
import torch
from safetensors.torch import load_file, save_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

ROOT = pathlib.Path(__file__).resolve().parents[2]
SLIDEWAY = os.environ.get("SLIDEWAY", ROOT / "build/slideway")
WORDS = "the slow grey ship left harbour before dawn and came home at night with salt on deck".split()


def make_tokenizer(folder):
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: i for i, token in enumerate(["<|end|>", *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|end|>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|end|>"}))
    return tokenizer.get_vocab_size()


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    vocabulary = make_tokenizer(folder)
    torch.manual_seed(1)
    config = LlamaConfig(vocab_size=vocabulary, hidden_size=32, intermediate_size=64, num_hidden_layers=3,
                         num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True, bos_token_id=None,
                         eos_token_id=0, max_position_embeddings=256)
    LlamaForCausalLM(config).to(torch.float32).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "rows.jsonl"
    draw = random.Random(3)
    rows = [{"text": " ".join(draw.choice(WORDS) for _ in range(draw.randint(3, 12)))} for _ in range(40)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def words(model, data, out, **more):
    keys = {"base_model": model, "datasets": data, "output_dir": out, "micro_batch_size": 2,
            "gradient_accumulation_steps": 2, "sequence_len": 64, "learning_rate": 3e-3, "num_epochs": 4,
            "weight_decay": 0.1, "save_steps": 5, "save_total_limit": 2, **more}
    return [str(SLIDEWAY), "train", *(f"{key}={value}" for key, value in keys.items())]


def train(*args, code=0, **more):
    done = subprocess.run(words(*args, **more), capture_output=True, text=True, timeout=300)
    assert done.returncode == code, done.stderr[-3000:]
    return done.stderr


def lines(out):
    path = out / "trainer_log.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [{key: value for key, value in row.items() if key != "seconds"} for row in rows]


def result(out):
    name = "adapter_model.safetensors" if (out / "adapter_config.json").exists() else "model.safetensors"
    return (out / name).read_bytes()


KINDS = {"full": {}, "full, no clipping": {"max_grad_norm": 0},
         "lora": {"adapter": "lora", "lora_r": 4, "lora_dropout": 0.1}}


@pytest.fixture(scope="module")
def straight(model, data, tmp_path_factory):
    runs = {}
    for kind, more in KINDS.items():
        runs[kind] = tmp_path_factory.mktemp("straight") / "out"
        train(model, data, runs[kind], **more)
        assert len(lines(runs[kind])) == 40
    return runs


def kill_at(command, out, step, how):
    """Sends `how` when the log has `step` lines; the exit code."""
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    while process.poll() is None:
        path = out / "trainer_log.jsonl"
        if path.exists() and path.read_bytes().count(b"\n") >= step:
            process.send_signal(how)
            break
        time.sleep(0.0005)
    return process.wait(timeout=60)


@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_falls(straight, kind):
    rows = lines(straight[kind])
    assert sum(r["loss"] for r in rows[-4:]) < (0.98 if kind == "lora" else 0.8) * sum(r["loss"] for r in rows[:4])
    assert (straight[kind] / "loss.svg").read_text().startswith("<svg")


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_run_resumes_to_the_same_bits(model, data, straight, tmp_path, kind):
    for step in (6, 13, 27):  # 10 steps an epoch: the second and third are in mid-epoch
        out = tmp_path / str(step)
        command = words(model, data, out, resume_from_checkpoint="auto", **KINDS[kind])
        assert kill_at(command, out, step, signal.SIGKILL) == -signal.SIGKILL
        train(model, data, out, resume_from_checkpoint="auto", **KINDS[kind])
        assert lines(out) == lines(straight[kind])
        assert result(out) == result(straight[kind])


def test_ctrl_c_saves_and_exits_with_130(model, data, straight, tmp_path):
    for how in (signal.SIGINT, signal.SIGTERM):
        out = tmp_path / how.name
        assert kill_at(words(model, data, out), out, 7, how) == 130
        said = train(model, data, out, resume_from_checkpoint="auto")
        assert "going on from" in said
        assert result(out) == result(straight["full"])


def test_sigkill_at_any_moment_leaves_a_whole_checkpoint(model, data, straight, tmp_path):
    out = tmp_path / "out"
    command = words(model, data, out, save_steps=1, resume_from_checkpoint="auto")
    draw = random.Random(5)
    for _ in range(25):
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        time.sleep(draw.uniform(0.02, 0.25))
        process.kill()
        said = process.communicate()[1]
        assert "passing over" not in said  # folders that bear a checkpoint's name are whole
    train(model, data, out, save_steps=1, resume_from_checkpoint="auto")
    assert result(out) == result(straight["full"])


@pytest.mark.parametrize("kind", KINDS)
def test_no_memory_setting_changes_a_bit(model, data, straight, tmp_path, kind):
    for name, more in {"sliding": {"device": "seeded", "device_seed": 3, "slots": 2},
                       "recomputing": {"activations": "recompute"},
                       "starved": {"device": "seeded", "gpu_memory": "900KiB"},
                       "one thread": {"threads": 1}}.items():
        train(model, data, tmp_path / name, **KINDS[kind], **more)
        assert lines(tmp_path / name) == lines(straight[kind]), name
        assert result(tmp_path / name) == result(straight[kind]), name


def test_transformers_and_peft_load_the_results(model, straight):
    tuned = AutoModelForCausalLM.from_pretrained(straight["full"], dtype=torch.float32)
    base = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    assert any(not torch.equal(a, b) for a, b in zip(tuned.parameters(), base.parameters()))
    assert (straight["full"] / "tokenizer.json").read_bytes() == (model / "tokenizer.json").read_bytes()
    from peft import PeftModel
    adapted = PeftModel.from_pretrained(base, straight["lora"])
    assert sum(p.abs().sum().item() for name, p in adapted.named_parameters() if "lora_B" in name) > 0


def test_tensorboard_reads_the_event_files_of_a_run_that_went_on(model, data, tmp_path):
    out = tmp_path / "out"
    train(model, data, out, max_steps=4, save_steps=2, use_tensorboard=True)
    first = lines(out)
    shutil.rmtree(out / "checkpoint-4")
    train(model, data, out, max_steps=4, save_steps=2, use_tensorboard=True, resume_from_checkpoint="auto")
    assert len(list((out / "logs").iterdir())) == 2
    events = EventAccumulator(str(out / "logs"), purge_orphaned_data=True).Reload()
    for tag, key in (("train/loss", "loss"), ("train/learning_rate", "lr"), ("train/grad_norm", "grad_norm")):
        read = [(event.step, event.value) for event in events.Scalars(tag)]
        assert read == [(row["step"], pytest.approx(row[key], rel=1e-6)) for row in first], tag


def test_resuming_another_run_is_refused(model, data, straight, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(straight["full"], out)
    for more, reason in (({"learning_rate": 1e-3}, "learning_rate"), ({"num_epochs": 5}, "50"),
                         ({"micro_batch_size": 1, "gradient_accumulation_steps": 4}, "micro_batch_size"),
                         ({"compute": "fp32"}, "weights"), ({"seed": 1}, "seed")):
        assert reason in train(model, data, out, code=2, resume_from_checkpoint="auto", **more)


def test_a_damaged_checkpoint_is_passed_over_by_name(model, data, straight, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(straight["full"], out)
    path = out / "checkpoint-40/model.safetensors"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    said = train(model, data, out, resume_from_checkpoint="auto")
    assert "passing over" in said and "checkpoint-40" in said and "model.safetensors" in said
    assert result(out) == result(straight["full"])


def test_a_full_disk_loses_nothing(model, data, tmp_path):
    out = tmp_path / "out"
    train(model, data, out, max_steps=5)
    before = sorted(p.name for p in out.iterdir())
    command = words(model, data, out, save_steps=5, max_steps=10)
    done = subprocess.run(command, capture_output=True, text=True, timeout=300,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000)))
    assert done.returncode == 1 and "File too large" in done.stderr and "safetensors" in done.stderr
    assert [name for name in before if name.startswith("checkpoint")] == \
        sorted(p.name for p in out.iterdir() if p.name.startswith("checkpoint"))


@pytest.fixture
def small_disk(tmp_path):
    """A file system of its own, as small as asked."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = []

    def mount(size):
        if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], capture_output=True).returncode:
            pytest.skip("may not mount a file system here")
        mounted.append(folder)
        return folder

    yield mount
    for _ in mounted:
        subprocess.run(["umount", folder], check=True)


def test_a_full_file_system_loses_nothing(model, data, small_disk):
    disk = small_disk("4m")
    out = disk / "out"
    train(model, data, out, max_steps=5)
    run = subprocess.Popen(words(model, data, out, save_steps=5, max_steps=2000), text=True, stderr=subprocess.PIPE)
    while not (out / "checkpoint-10").exists():
        assert run.poll() is None
        time.sleep(0.002)
    filler = open(disk / "filler", "wb")
    with pytest.raises(OSError, match="No space"):
        while True:
            filler.write(bytes(4096))
            filler.flush()
    said = run.communicate(timeout=300)[1]
    assert run.returncode == 1 and "No space left on device" in said and str(out) in said, said[-2000:]
    last = sorted(out.glob("checkpoint-*"), key=lambda p: int(p.name.split("-")[1]))[-1]
    with contextlib.suppress(OSError):
        filler.close()
    (disk / "filler").unlink()
    step = int(last.name.split("-")[1])
    assert "resum" in train(model, data, out, save_steps=5, max_steps=step + 5)
    assert (out / f"checkpoint-{step + 5}").exists()


def test_a_disk_too_small_for_a_checkpoint_is_refused_before_the_first_step(model, data, small_disk):
    out = small_disk("200k") / "out"
    said = train(model, data, out, code=1)
    assert "checkpoint" in said and "free" in said and not lines(out), said


def damaged(model, tmp_path, change):
    folder = tmp_path / "damaged"
    shutil.copytree(model, folder)
    change(folder)
    return folder


def rewrite(change):
    def apply(folder):
        tensors = load_file(folder / "model.safetensors")
        change(tensors)
        save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return apply


NORM = "model.layers.1.input_layernorm.weight"


def cut(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def drop_shard(folder):
    tensors = load_file(folder / "model.safetensors")
    names = {name: f"model-0000{1 + i % 2}-of-00002.safetensors" for i, name in enumerate(sorted(tensors))}
    for shard in set(names.values()):
        save_file({n: tensors[n] for n in names if names[n] == shard}, folder / shard, {"format": "pt"})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": names}))
    (folder / "model.safetensors").unlink()
    (folder / "model-00002-of-00002.safetensors").unlink()


@pytest.mark.parametrize("change, said", [
    (cut, "model.safetensors"),
    (drop_shard, "model-00002-of-00002.safetensors"),
    (rewrite(lambda t: t.update({NORM: torch.ones(31)})), NORM),
    (rewrite(lambda t: t[NORM].fill_(float("nan"))), NORM),
    (rewrite(lambda t: t.pop(NORM)), NORM),
], ids=["truncated", "missing shard", "wrong shape", "NaN", "missing tensor"])
def test_a_bad_model_is_refused_by_name(model, data, tmp_path, change, said):
    message = train(damaged(model, tmp_path, change), data, tmp_path / "out", code=1)
    assert said in message
    assert not list((tmp_path / "out").glob("checkpoint-*"))


def test_bad_data_and_keys_end_with_a_clear_message(model, data, tmp_path):
    empty, broken = tmp_path / "empty.jsonl", tmp_path / "broken.jsonl"
    empty.write_text("\n\n")
    broken.write_text('{"text": "a"}\n\n{"text": "b"\n')
    assert "0 trainable tokens" in train(model, empty, tmp_path / "out", code=2)
    assert "broken.jsonl:3" in train(model, broken, tmp_path / "out", code=2)
    assert "did you mean 'learning_rate'" in train(model, data, tmp_path / "out", code=2, learning_rat=1)
    assert not (tmp_path / "out").exists()


def test_what_cannot_fit_is_refused_with_what_would(model, data, tmp_path):
    said = train(model, data, tmp_path / "out", code=1, device="seeded", gpu_memory="100KiB")
    assert "gpu_memory allows 100 KiB" in said and "what would fit" in said


def test_a_dry_run_prints_the_plan_and_writes_nothing(model, data, tmp_path):
    done = subprocess.run([*words(model, data, tmp_path / "out"), "--dry-run"], capture_output=True, text=True)
    assert done.returncode == 0 and "moments" in done.stderr and not (tmp_path / "out").exists()


def test_a_diverging_run_stops_and_keeps_its_checkpoint(model, data, tmp_path):
    out = tmp_path / "out"
    said = train(model, data, out, code=1, learning_rate=1e30, max_grad_norm=0, save_steps=1)
    assert "not finite" in said and "checkpoint stands" in said
