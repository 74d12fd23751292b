"""The configuration: strict, told with lines, overridden by the environment, and documented from one place."""

import dataclasses
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.common.config import config
from holdfast.common.config.config import Config, DirectorySetting, parse
from holdfast.common.config.placement import UserTags
from holdfast.common.config.settings import Address, Duration, Size
from holdfast.common.errors import ConfigError
from tests.write_docs import PAGES

WORKER = """
[worker]
name = "w1"
memory = "1GiB"          # more than the default
masters = ["127.0.0.1:7070", "[::1]:7071"]

[[worker.directories]]
path = "/data/a"

[[worker.directories]]
path = "/data/b"
tier = "HDD"
capacity = "3TiB"
"""


def refusal(text, environ=None):
    with pytest.raises(ConfigError) as caught:
        parse(text, environ, "h.toml")
    return str(caught.value)


def test_empty_text_is_the_defaults():
    """A configuration needs nothing: every key has a default."""
    assert parse("") == Config()


def test_values_and_units():
    """Sizes are bytes, durations have their unit in the name, tables become dataclasses in the order written."""
    read = parse(WORKER + '[raft]\nheartbeat = "50ms"')
    assert read.worker.memory == 1 << 30
    assert read.raft.heartbeat == Duration(50_000_000)
    assert (read.raft.heartbeat.ms, read.raft.heartbeat.seconds) == (50, 0.05)
    assert read.worker.masters == ("127.0.0.1:7070", "[::1]:7071")
    assert read.worker.directories == (
        DirectorySetting(path="/data/a"),
        DirectorySetting(path="/data/b", tier="HDD", capacity=Size(3 << 40)),
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a = " + "[" * 5_000, "h.toml: not valid TOML: it is nested too deeply"),
        (f"a = {'9' * 5_000}", "h.toml: not valid TOML: Exceeds the limit"),
        (f"worker.name{'.a' * 5_000} = 1", "must be text in quotes, not what is too long to be shown"),
        (f"worker.name = 0x{'f' * 5_000}", "must be text in quotes, not what is too long to be shown"),
        (f"tiers.lrfu_attenuation = 0x{'f' * 500}", "must be a number that is not negative"),
        (f"tiers.range = {1 << 63}", "below 2^63"),
        ('raft.heartbeat = "999999999999999d"', "more than can be counted"),
        ('worker.memory = "999999999999999TiB"', "more than can be counted"),
        (f'worker.name = "{"x" * 256}"', "must be a name of at most 255 bytes that can be seen"),
        (f'cluster.id = "{"漢" * 86}"', "must be a name of at most 255 bytes that can be seen"),
        (r'worker.rack = "a\nb"', r'that can be seen, not "a\nb"'),
        (r'worker.bind = "a\u0000b"', r'must be the name or address of a host, not "a\u0000b"'),
        ('worker.address = "bücher"', "must be the name or address of a host"),
        ('master.bind = "a..b"', "must be the name or address of a host"),
        (r'cluster.secret_file = "a\u0000b"', "must be text in UTF-8 without a zero byte"),
        (f'worker.masters = ["{"x" * 70}.b:80"]', 'must be "host:port"'),
        ('worker.masters = ["bücher:80"]', 'must be "host:port"'),
        ('worker.tags = ["ssd", "a,b"]', "worker.tags[1] 'a,b' is no tag: 1 to 63 letters"),
        (f"worker.tags = {['a'] * 17}", "[worker] 17 tags are too many: there may be 16"),
        ('[[placement.users]]\nuser = "etl"\ntags = [""]', "placement.users[0].tags[0] '' is no tag"),
        ("[placement]\nusers = [{user = 'a'}, {user = 'a'}]", "[placement] names a user twice: a, a"),
        ('worker.memory = "٣GiB"', "must be a size"),
        ('worker.masters = ["a:٣"]', 'must be "host:port"'),
        ("[wroker]", 'h.toml line 1: the configuration has no section "wroker"; did you mean "worker"?'),
        ('[worker]\n\nmemroy = "1GiB"', 'h.toml line 3: [worker] has no key "memroy"; did you mean "memory"?'),
        ("worker.zzz = 1", 'h.toml line 1: [worker] has no key "zzz"; known are name, host'),
        ("worker = 3", "h.toml line 1: [worker] must be a table, not 3"),
        ("[worker]\nmemory = 5", 'line 2: worker.memory must be a size with a unit in quotes, such as "256KiB", not 5'),
        ('[worker]\nmemory = "5MB"', 'not "5MB"; the units are B, KiB, MiB, GiB, TiB'),
        ('[worker]\nmemory = "-5MiB"', "worker.memory must be a size that is not negative"),
        ('[lease]\nworker = "10"', 'not "10"; the units are ms, s, m, h, d'),
        ('[lease]\nworker = "-10s"', "lease.worker must be a duration that is not negative"),
        ("[lease]\nworker = true", "lease.worker must be a duration"),
        ("[worker]\ndata_port = 70000", "worker.data_port must be a port from 0 to 65535, not 70000"),
        ("[worker]\ndata_port = true", "worker.data_port must be a port"),
        ("[worker]\nname = 1", "worker.name must be text in quotes, not 1"),
        ('[worker]\nmasters = "a:1"', 'worker.masters must be a list in brackets, not "a:1"'),
        ('[worker]\nmasters = ["a:1", "b"]', 'h.toml line 2: worker.masters[1] must be "host:port", not "b"'),
        ('[worker]\nmasters = ["a:0"]', 'worker.masters[0] must be "host:port"'),
        ("[raft]\nsnapshot_entries = -1", "raft.snapshot_entries must be a whole number that is not negative, not -1"),
        ('[master]\nspark_history_url = "javascript:alert(1)"', "spark_history_url must be an address of http"),
        ('[master]\nspark_history_url = "http://rm/{application}"', "http://rm:8088/cluster/app/{app_id}, not"),
        ("[raft]\nsnapshot_entries = true", "raft.snapshot_entries must be a whole number"),
        ('[log]\nformat = "xml"', 'log.format must be one of "text", "json", not "xml"'),
        ("[faults]\nenabled = 1", "faults.enabled must be true or false, not 1"),
        ("[faults]\nenabled = true\ndisk_error_rate = 2", "faults.disk_error_rate must be a number from 0.0 to 1.0"),
        ('[faults]\ndisk_delay = "1s"', "h.toml line 1: [faults] asks for faults, but enabled is false"),
        ('[raft]\nheartbeat = "300ms"', "h.toml line 1: [raft] heartbeat must be at most half"),
        ('[raft]\nelection_timeout_max = "450ms"', "[raft] election_timeout_max must be at least"),
        ('[lease]\nheartbeat = "6s"', "[lease] heartbeat must be at most half of worker"),
        ('[tiers]\nallocator = "best"', 'tiers.allocator must be one of "greedy", "maxfree", "roundrobin", not "best"'),
        ('[tiers]\norder = ["SSD", "TAPE"]', 'tiers.order[1] must be one of "MEMORY", "SSD", "HDD", "DFS", not "TAPE"'),
        ('[tiers]\norder = ["SSD", "HDD", "DFS"]', "[tiers] order must name each of MEMORY, SSD, HDD and DFS once"),
        ('[tiers]\norder = ["DFS", "MEMORY", "SSD", "HDD"]', "[tiers] order must name each"),
        ('[tiers]\nreviewer_hard = "30GiB"', "h.toml line 1: [tiers] reviewer_hard must be at most reviewer_soft"),
        ("[tiers]\nlrfu_step = 1.5", "tiers.lrfu_step must be a number from 0.0 to 1.0, not 1.5"),
        ("[tiers]\nlrfu_attenuation = 1.9", "[tiers] lrfu_attenuation must be 2 or more"),
        ("[tiers]\nlrfu_attenuation = -2.0", "tiers.lrfu_attenuation must be a number that is not negative, not -2.0"),
        ("[tiers]\nlrfu_attenuation = inf", "tiers.lrfu_attenuation must be a number that is not negative, not inf"),
        ("[tiers]\nlrfu_attenuation = nan", "tiers.lrfu_attenuation must be a number that is not negative, not nan"),
        ('[tiers]\nlrfu_attenuation = "2"', "tiers.lrfu_attenuation must be a number that is not negative"),
        ("[tiers]\nlrfu_attenuation = true", "tiers.lrfu_attenuation must be a number that is not negative"),
        ("[tiers]\nlow_watermark = 0.95", "[tiers] low_watermark must be above 0 and below high_watermark"),
        ("[tiers]\nlow_watermark = 0.0", "[tiers] low_watermark must be above 0"),
        ("[tiers]\nhigh_watermark = 1.01", "tiers.high_watermark must be a number from 0.0 to 1.0"),
        ("[tiers]\npromote = true\npromote_quota = 0.96", "[tiers] promote_quota must be at most high_watermark"),
        ("[tiers]\nrange = 0", "[tiers] range must be 1 or more"),
        ('[tiers]\nbackoff = "all"', 'tiers.backoff must be one of "any", "directory", not "all"'),
        ("[[worker.directories]]\ntier = 1", 'h.toml line 1: worker.directories[0] needs the key "path"'),
        (
            '[[worker.directories]]\npath = "data"',
            'h.toml line 1: worker.directories[0] path must be absolute, as in /data/holdfast, not "data"',
        ),
        (
            '[[worker.directories]]\npath = "/a"\ncapacity = "16383KiB"',
            "h.toml line 1: worker.directories[0] capacity must be at least 16MiB",
        ),
        ('[worker]\nx = "1\n', "h.toml: not valid TOML"),
    ],
)
def test_refusals_say_where_and_what(text, expected):
    """Whatever is wrong is refused with its line, what was expected, and the nearest known name."""
    assert expected in refusal(text)


def test_all_problems_are_reported_at_once():
    """One run names every mistake, in the order of the lines, so that a file is mended in one go."""
    text = refusal('[worker]\nnane = "a"\n[[worker.directories]]\npath="/a"\n[[worker.directories]]\npaht="/b"\n')
    assert [line.partition(":")[0] for line in text.splitlines()] == [
        "h.toml line 2",
        "h.toml line 5",
        "h.toml line 6",
    ]


def test_environment_wins_over_the_file():
    """HOLDFAST_SECTION_KEY replaces a value of the file; text, numbers, lists and tables are read as meant."""
    environ = {
        "HOLDFAST_WORKER_NAME": "w2",
        "HOLDFAST_WORKER_MEMORY": "2GiB",
        "HOLDFAST_WORKER_DATA_PORT": "0",
        "HOLDFAST_WORKER_MASTERS": "a:1, b:2",
        "HOLDFAST_WORKER_DIRECTORIES": '[{ path = "/c" }]',
        "HOLDFAST_FAULTS_ENABLED": "true",
        "HOLDFAST_LOG_LEVEL": "DEBUG",
        "HOLDFAST_TEST_LOGS": "names no section, so it is not for the configuration",
        "PATH": "nor this",
    }
    read = parse(WORKER, environ)
    assert (read.worker.name, read.worker.memory, read.worker.data_port) == ("w2", 2 << 30, 0)
    assert read.worker.masters == ("a:1", "b:2")
    assert read.worker.directories == (DirectorySetting(path="/c"),)
    assert (read.faults.enabled, read.log.level) == (True, "DEBUG")


@pytest.mark.parametrize(
    ("variable", "text", "expected"),
    [
        ("HOLDFAST_WORKER_MEMROY", "1GiB", '[worker] has no key "memroy"; did you mean "memory"?'),
        ("HOLDFAST_WORKER_DATA_PORT", "many", 'worker.data_port cannot be read from "many"'),
        ("HOLDFAST_WORKER_DATA_PORT", "9" * 5_000, "worker.data_port cannot be read from"),
        ("HOLDFAST_WORKER_DIRECTORIES", "[" * 5_000, "worker.directories cannot be read from"),
        ("HOLDFAST_LEASE_WORKER", "10 years", "lease.worker must be a duration"),
    ],
)
def test_refused_variables_are_named(variable, text, expected):
    """A mistake in the environment names the variable, not a line."""
    assert refusal(WORKER, {variable: text}).startswith(f"environment variable {variable}: {expected}")


def test_rendered_configuration_reads_back_equal():
    """What `render` writes for another process is what that process reads."""
    read = parse(WORKER + '[faults]\nenabled = true\nclock_offset = "-1500ms"\ndisk_error_rate = 0.25')
    assert parse(config.render(read)) == read
    assert config.render(Config()) == ""


@pytest.mark.parametrize("capacity", ["0", "16MiB"])
def test_the_least_capacity(capacity):
    """All of the file system, and the least capacity that an error names, are taken."""
    read = parse(f'worker.directories = [{{ path = "/a", capacity = "{capacity}" }}]')
    assert read.worker.directories[0].capacity == (0 if capacity == "0" else config.CAPACITY_BYTES_LEAST)


@given(
    name=st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40),
    memory=st.integers(0, 1 << 50),
    grace=st.integers(0, 10**9),
    ports=st.lists(st.integers(1, 65_535), max_size=3),
)
def test_any_value_survives_rendering(name, memory, grace, ports):
    """Every text, size, duration (whole milliseconds) and list reads back as it was."""
    worker = dataclasses.replace(
        Config().worker,
        memory=memory,
        return_grace=Duration(grace * 10**6),
        masters=tuple(Address(f"h:{port}") for port in ports),
    )
    cluster = dataclasses.replace(Config().cluster, secret_file=name)
    whole = dataclasses.replace(Config(), worker=worker, cluster=cluster)
    assert parse(config.render(whole)) == whole


def test_tiers_default_to_the_reference():
    """The defaults of reference/placement.md, 3.3; upkeep that moves files up is off."""
    tiers = Config().tiers
    assert (tiers.allocator, tiers.reviewer, tiers.memory_annotator, tiers.annotator) == (
        "maxfree",
        "probabilistic",
        "largest",
        "lru",
    )
    assert (tiers.reviewer_hard, tiers.reviewer_soft, tiers.free_ahead) == (5 << 30, 20 << 30, 0)
    assert (tiers.lrfu_step, tiers.lrfu_attenuation) == (0.25, 2.0)
    assert (tiers.high_watermark, tiers.low_watermark, tiers.promote_quota) == (0.95, 0.7, 0.9)
    assert (tiers.align, tiers.promote, tiers.range, tiers.backoff) == (False, False, 100, "directory")
    assert tiers.cooldown.seconds == 10
    assert tiers.order == ("MEMORY", "SSD", "HDD", "DFS")


def test_tiers_are_read_and_rendered():
    """Numbers may be written whole, and limits that are equal, or a quota that is not used, are no contradiction."""
    text = """
[tiers]
order = ["SSD", "MEMORY", "HDD", "DFS"]
lrfu_attenuation = 3
reviewer_hard = "20GiB"
promote_quota = 1.0
"""
    read = parse(text, {"HOLDFAST_TIERS_LRFU_STEP": "0.5", "HOLDFAST_TIERS_ANNOTATOR": "lrfu"})
    assert (read.tiers.lrfu_attenuation, read.tiers.lrfu_step, read.tiers.annotator) == (3.0, 0.5, "lrfu")
    assert read.tiers.order[0] == "SSD"
    assert parse(config.render(read)) == read


def test_tables_are_read_like_text():
    """The settings of a local cluster are given as mappings and checked as strictly."""
    tables = {"worker": {"memory": "1GiB", "directories": [{"path": "/a"}]}}
    assert config.from_tables(tables).worker.directories == (DirectorySetting(path="/a"),)
    with pytest.raises(ConfigError, match=r'settings: \[worker\] has no key "memroy"'):
        config.from_tables({"worker": {"memroy": "1GiB"}})


def test_roles_need_what_has_no_default():
    """A master needs a directory and its own entry among the peers; a worker needs name, masters and directories."""
    peers = '[{ name = "m1", raft = "a:1", http = "a:2" }]'
    good = parse(f'[master]\nname = "m1"\ndirectory = "/m"\npeers = {peers}')
    assert config.require_master(good).http == "a:2"
    with pytest.raises(ConfigError, match="not among the peers: m1"):
        config.require_master(parse(f'[master]\nname = "m2"\ndirectory = "/m"\npeers = {peers}'))
    with pytest.raises(ConfigError, match=r'line 2: \[master\] directory must be absolute, .* not "m1"'):
        parse('\n[master]\ndirectory = "m1"')
    six = ", ".join(peers[1:-1].replace("m1", f"m{number}") for number in range(6))
    with pytest.raises(ConfigError, match=r"line 1: \[master\] has 6 peers, and there may be 5"):
        parse(f"[master]\npeers = [{six}]")
    with pytest.raises(ConfigError, match=r"\[master\] needs directory"):
        config.require_master(Config())
    config.require_worker(parse(WORKER))
    with pytest.raises(ConfigError, match=r"\[worker\] needs name"):
        config.require_worker(Config())


@pytest.mark.parametrize(
    ("bind", "port", "http", "good"),
    [
        ("127.0.0.1", 27171, "127.0.0.1:27171", True),
        ("127.0.0.1", 27179, "127.0.0.1:27171", False),
        ("0.0.0.0", 27179, "localhost:27171", False),
        ("::1", 27179, "[::1]:27171", False),
        ("10.0.0.1", 27179, "10.0.0.1:27171", False),
        ("0.0.0.0", 27179, "10.0.0.1:27171", True),
        ("127.0.0.1", 27179, "m1.example.org:443", True),
        ("127.0.0.1", 0, "127.0.0.1:27171", True),
    ],
)
def test_a_master_that_sends_clients_to_a_dead_port(bind, port, http, good):
    """Its own entry among the peers may name another port only where an address that is not its own leads here."""
    peers = f'[{{ name = "m1", raft = "a:1", http = "{http}" }}]'
    made = parse(f'[master]\nname = "m1"\ndirectory = "/m"\nbind = "{bind}"\nhttp_port = {port}\npeers = {peers}')
    if good:
        assert config.require_master(made).http == http
        return
    with pytest.raises(ConfigError, match=f"master.http_port is {port}, and among the peers m1 has http = .*give both"):
        config.require_master(made)


@pytest.mark.parametrize(
    ("bind", "address", "expected"),
    [("127.0.0.1", "", "127.0.0.1"), ("0.0.0.0", "", "box"), ("::", "", "box"), ("0.0.0.0", "pub", "pub")],
)
def test_advertised_address(bind, address, expected):
    """Others are told what is set, else where the server listens, else the machine's name; never "any address"."""
    assert config.advertised(bind, address, "box") == expected


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_generated_pages_are_current(page):
    """A page made from code says what the code says; `python -m tests.write_docs` makes it anew."""
    assert page.read_text("utf-8") == PAGES[page]()


def test_every_key_that_may_be_secret_is_marked():
    """A key of a section with a secret's name is marked as one, or as the path of one, so that no bundle shows it; and
    tables in lists have none, where nobody would look for the mark."""
    suspicious = re.compile("secret|token|password|credential|key")
    for section in dataclasses.fields(Config):
        for key in dataclasses.fields(type(getattr(Config(), section.name))):
            marked = key.metadata["secret"]
            assert marked or not suspicious.search(key.name) or key.name in NO_SECRETS, key.name
    for table in (DirectorySetting, config.MasterPeer, config.UserQuota, UserTags):
        assert not any(suspicious.search(key.name) for key in dataclasses.fields(table))


#: A duration.
NO_SECRETS = {"token_life"}


@pytest.mark.parametrize("text", ['[dfs]\naccess_key = "hush"\n[nothing]\n', "[dfs]\naccess_key = 'hush'\n]"])
def test_secrets_of_a_refused_text_are_known(text):
    """What is marked is found in a text that is refused, also in one that is no TOML, and in variables."""
    with pytest.raises(ConfigError):
        parse(text)
    (found,) = config.marked_in_text(text, {})
    assert (found.key, found.part, found.text) == ("dfs.access_key", "value", "hush")
    (found,) = config.marked_in_text(text, {"HOLDFAST_DFS_ACCESS_KEY": "wins"})
    assert found.text == "wins"
    assert "hush" not in repr(found)


def test_shown_settings_are_whole_and_without_secrets():
    """Each key is there with its effect, as JSON has it; what is secret is replaced, and an empty one stays empty."""
    shown = config.shown_tables(parse(WORKER + '[placement]\nresolver = "mine"\nresolver_argument = "hush"\n'), "gone")
    assert shown["placement"]["resolver_argument"] == "gone"
    assert shown["dfs"]["access_key"] == ""
    assert shown["placement"]["resolver"] == "mine"
    assert shown["raft"]["heartbeat"] == "100ms"
    directories: Any = shown["worker"]["directories"]
    assert directories[1] == {"path": "/data/b", "tier": "HDD", "capacity": "3TiB"}
    assert set(shown) == {section.name for section in dataclasses.fields(Config)}
