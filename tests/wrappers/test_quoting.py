"""Words arrive as they were written, whatever bytes they have: through the batch script and bash to the program, and
through `aml-dist exec`, which replaces the documented variables and nothing else."""

import json
import os
import random
import re
import subprocess

import pytest
from conftest import USAGE

LISTS = 10_000
TOGETHER = 10  # lists in one command line: to start a program takes longer than to read them
SEED = 20261121

# Everything that a shell, sbatch or a sloppy quoter would trip over.
PIECES = [b"", b" ", b"  ", b"\t", b"\n", b"\r", b"\r\n", b"'", b"''", b'"', b"\\", b"\\\\", b"\\'", b"$", b"$$", b"${", b"}",
          b"$(", b")", b"`", b"`id`", b"$(id)", b"*", b"?", b"[a-z]", b"~", b"~root", b"!", b"!!", b"#", b"&", b"|", b";", b"<",
          b">", b"{a,b}", b"-", b"--", b"-n", b"=", b"A=1", b"%", b"%j", b"\x01", b"\x7f", b"\x1b[31m", b"\xff", b"\xc3",
          b"\xe2\x82", b"\xf0\x9f\x92\xa9", "ä".encode(), "’".encode(), "\u2028".encode(), b"\\n", b"\\x41", b"$'x'",
          b"$HOME", b"${HOME}", b"$RANKS", b"${RANK:-0}", b"$1", b"$@", b"EOF", b"#SBATCH --nodes=99", b"a", b"train.py"]
VARIABLES = {"RANK": b"5", "LOCAL_RANK": b"1", "MASTER_ADDR": b"node $x 'q'", "MASTER_PORT": b"", "NODE_RANK": b"\xff\n",
             "TF_CONFIG": b'{"cluster": {"worker": ["a:1"]}}'}


def hostile_word(generator: random.Random) -> bytes:
    if generator.random() < 0.3:
        length = generator.randrange(0, 24)
        return bytes(generator.randrange(1, 256) for _ in range(length))
    return b"".join(generator.choice(PIECES) for _ in range(generator.randrange(0, 6)))


def hostile_lists(count: int, seed: int):
    generator = random.Random(seed)
    for _ in range(count):
        yield [hostile_word(generator) for _ in range(generator.randrange(1, 7))]


def mentions_variable(words: list[bytes]) -> bool:
    return any(re.search(rb"\$(?:%s)(?![A-Za-z0-9_])|\$\{(?:%s)\}" % ((b"|".join(map(str.encode, VARIABLES)),) * 2), word)
               for word in words)


@pytest.fixture(scope="module")
def show(tmp_path_factory):
    """A program that writes its arguments: their count, then each with its length."""
    source = tmp_path_factory.mktemp("show") / "show.c"
    source.write_text('#include <stdio.h>\n#include <string.h>\nint main(int c, char **v) {\n'
                      '  printf("%d\\n", c - 1);\n'
                      '  for (int i = 1; i < c; ++i) { printf("%zu:", strlen(v[i])); fputs(v[i], stdout); }\n}\n')
    program = source.with_suffix("")
    subprocess.run(["cc", "-o", program, source], check=True)
    return program


def read_shown(out: bytes) -> list[list[bytes]]:
    """What `show` wrote, of one call after the other."""
    calls, at = [], 0
    while at < len(out):
        end = out.index(b"\n", at)
        words, at, count = [], end + 1, int(out[at:end])
        for _ in range(count):
            colon = out.index(b":", at)
            length = int(out[at:colon])
            words.append(out[colon + 1:colon + 1 + length])
            at = colon + 1 + length
        calls.append(words)
    return calls


def test_ten_thousand_hostile_lists_arrive_byte_for_byte(aml_run, show, tmp_path):
    """Some lists together become a batch script. bash runs its srun line, where srun is replaced by a function that drops
    srun's options; all scripts run in one bash."""
    lists = list(hostile_lists(LISTS, SEED))
    commands = [sum(lists[at:at + TOGETHER], []) for at in range(0, LISTS, TOGETHER)]
    scripts = tmp_path / "all.sh"
    with scripts.open("wb") as file:
        file.write(b'srun() { while [[ $1 == --* ]]; do shift; done; "$@"; }\n')
        for words in commands:
            done = aml_run.good("--dry-run", "--no-expand", "--", str(show), *words)
            file.write(done.out.split(b"\n", 1)[1])
            assert b"\r\n" not in done.out  # sbatch refuses scripts with DOS line ends
    done = subprocess.run(["bash", scripts], capture_output=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    arrived = read_shown(done.stdout)
    assert len(arrived) == len(commands) == LISTS // TOGETHER
    for sent, got in zip(commands, arrived, strict=True):
        assert sent == got


def expanded_by_oracle(word: bytes) -> bytes:
    """What the documentation says: $NAME and ${NAME} of the documented names, one pass, nothing else."""
    def replace(match: re.Match) -> bytes:
        name = (match.group(1) or match.group(2)).decode()
        return VARIABLES.get(name, match.group(0))

    return re.sub(rb"\$(?:([A-Za-z0-9_]+)|\{([A-Za-z0-9_]+)\})", replace, word)


def test_exec_replaces_the_documented_names_and_nothing_else(aml_dist, show):
    generator = random.Random(SEED + 1)
    references = [b"$RANK", b"${RANK}", b"$LOCAL_RANK", b"${MASTER_ADDR}", b"$MASTER_PORT", b"${NODE_RANK}", b"$TF_CONFIG"]
    for _ in range(1000):
        words = [b"".join(generator.choice([hostile_word(generator), generator.choice(references)])
                          for _ in range(generator.randrange(0, 4))) for _ in range(generator.randrange(1, 6))]
        done = subprocess.run([aml_dist.path, "exec", "--", show, *words], capture_output=True, timeout=30, check=False,
                              env={b"PATH": b"/usr/bin", **{key.encode(): value for key, value in VARIABLES.items()}})
        assert done.returncode == 0, done
        assert read_shown(done.stdout) == [[expanded_by_oracle(word) for word in words]]


def test_a_variable_that_is_not_set_is_refused_by_name(aml_dist):
    said = aml_dist.refusal(USAGE, "exec", "--", "echo", "$LOCAL_RANK")
    assert said.startswith("exec: $LOCAL_RANK in an argument cannot be expanded")


def test_exec_hands_the_programs_status_through(aml_dist):
    assert aml_dist.run("exec", "sh", "-c", "exit 7").status == 7
    assert aml_dist.run("exec", "--", "/no/such/program").status == 127
    assert aml_dist.run("exec", "--", "/etc/passwd").status == 126
    assert "the command is missing" in aml_dist.refusal(USAGE, "exec")


def test_only_commands_that_mention_a_variable_go_through_exec(aml_run):
    for words in hostile_lists(300, SEED + 2):
        script = aml_run.good("--dry-run", "--", "prog", *words).out
        assert (b"aml-dist exec -- prog" in script) == mentions_variable(words), words


def test_kind_none_expands_nothing(aml_run):
    assert b"exec --" not in aml_run.good("--dry-run", "--kind", "none", "--", "prog", "$RANK").out


@pytest.mark.parametrize("value", ["plain", "two words", 'a "b" c', "back\\slash", "$HOME `id` #x", "l1\nl2", "ä", "a'b"])
def test_values_of_sbatch_options_stay_one_value(aml_run, value):
    """An #SBATCH line is read by sbatch's own rules: a double-quoted value with backslashes before \\ and \"."""
    script = aml_run.good("--dry-run", f"--comment={value}", "--", "true").text
    line = next(line for line in script.splitlines() if line.startswith("#SBATCH --comment="))
    text = line.removeprefix("#SBATCH --comment=")
    if text.startswith('"'):
        text = re.sub(r"\\(.)", r"\1", text[1:-1])
    assert text == value.replace("\n", " ")


def test_the_script_for_hostile_words_passes_shellcheck(aml_run, tmp_path):
    paths = []
    for number, words in enumerate(hostile_lists(150, SEED + 3)):
        path = tmp_path / f"{number}.sh"
        path.write_bytes(aml_run.good("--dry-run", "--", "prog", *words).out)
        paths.append(path)
    done = subprocess.run(["shellcheck", "--format=json", *paths], capture_output=True, text=True, check=False)
    assert json.loads(done.stdout) == [], done.stdout[:2000]


def test_an_argument_that_linux_would_not_take_is_refused(aml_run, job):
    path = job("command: " + "x" * 140_000 + "\n")
    assert "128 KiB" in aml_run.refusal(USAGE, "--dry-run", path)
    assert os.path.exists(path)
