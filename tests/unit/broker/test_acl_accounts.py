"""Access files and address patterns: what they mean, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from cometmq.broker.acl.accounts import DENY, PUB, SUB, load_file, stamp_of, write_file
from cometmq.broker.acl.addresses import address_pattern
from cometmq.errors import ConfigError


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        ("", "", "127.0.0.1 ::1"),
        ("   ", "", "10.0.0.1"),
        ("*", "10.0.0.1 ::1", ""),
        ("*.*.*.*", "10.0.0.1", ""),
        ("*:*:*:*:*:*:*:*", "::1 fe80::1", ""),
        ("192.168.0.1", "192.168.0.1 ::ffff:192.168.0.1", "192.168.0.2 192.168.0.10"),
        ("192.168.0.1, 192.168.0.5", "192.168.0.1 192.168.0.5", "192.168.0.2"),
        ("192.168.0.{1,2,30}", "192.168.0.1 192.168.0.30", "192.168.0.3 192.168.1.1"),
        ("192.168.1.*", "192.168.1.0 192.168.1.255", "192.168.2.1 10.168.1.1"),
        ("192.168.*.*", "192.168.9.9", "192.169.0.1"),
        ("192.168.*", "192.168.9.9", "192.169.0.1"),
        ("192.168.1.10-20", "192.168.1.10 192.168.1.20", "192.168.1.9 192.168.1.21"),
        ("192.168.1-5.*", "192.168.3.77", "192.168.6.1"),
        ("10.1-3.*.*", "10.2.200.3", "10.4.0.1"),
        ("::1", "::1 0:0:0:0:0:0:0:1", "::2 127.0.0.1"),
        ("fe80:0:0:0:0:0:0:{1,2}", "fe80::1 fe80::2", "fe80::3"),
        ("fe80:0:0:0:0:0:0:*", "fe80::ffff", "fe80::1:1"),
        ("fe80:0:0:0:0:0:0:1-f", "fe80::a", "fe80::10"),
    ],
)
def test_address_patterns(pattern: str, inside: str, outside: str) -> None:
    matches = address_pattern(pattern)
    assert [address for address in inside.split() if not matches(address)] == []
    assert [address for address in outside.split() if matches(address)] == []
    assert not matches("not an address") or pattern.startswith("*")


@pytest.mark.parametrize(
    "pattern",
    [
        "localhost", "192.168.0", "192.168.0.256", "192.168.0.1.5", "192.168.0.{1", "192.168.{1,2}.3", "1.2.3.5-2",
        "1.2.3.4-400", "1.2.3.x", "1.2.3.4,nonsense", "fe80:*:zz:*:*:*:*:*", "1.2-3", "{1,2}",
    ],
)  # fmt: skip
def test_bad_patterns_are_errors(pattern: str) -> None:
    with pytest.raises(ConfigError):
        address_pattern(pattern)


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_accounts_are_read_with_their_permissions(tmp_path: Path) -> None:
    text = """
globalWhiteRemoteAddresses: ["10.10.103.*", "192.168.0.1"]
accounts:
  - accessKey: RocketMQ
    secretKey: 12345678
    whiteRemoteAddress: 192.168.1.*
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms: [topicA=DENY, "topicB=PUB|SUB", " topicC = SUB|PUB "]
    groupPerms: [groupA=DENY, groupB=SUB]
  - accessKey: 87654321
    secretKey: "abcdefgh"
    admin: true
    defaultTopicPerm: nonsense
dataVersion:
  - counter: 3
    timestamp: 1700000000000
"""
    file = load_file(write(tmp_path / "plain_acl.yml", text))
    first, second = file.accounts
    assert (first.access_key, first.secret_key, first.admin) == ("RocketMQ", "12345678", False)
    assert first.permission_for("topicA") == DENY
    assert first.permission_for("topicB") == first.permission_for("topicC") == PUB | SUB
    assert first.permission_for("other") == DENY
    assert first.permission_for("%RETRY%groupA") == DENY
    assert first.permission_for("%RETRY%groupB") == first.permission_for("%RETRY%other") == SUB
    assert first.white_address("192.168.1.7")
    assert (second.access_key, second.admin, second.default_topic) == ("87654321", True, DENY)
    assert file.white_addresses[0]("10.10.103.9")
    assert file.version == {"counter": 3, "timestamp": 1_700_000_000_000}


def test_empty_file_has_no_accounts(tmp_path: Path) -> None:
    file = load_file(write(tmp_path / "plain_acl.yml", ""))
    assert (file.accounts, file.white_addresses, file.version["counter"]) == ([], [], 0)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("accounts: [}", "cannot be read"),
        ("- just\n- a list\n", "must be a mapping"),
        ("accounts: [text]", "an account is a mapping"),
        ("accounts: [{accessKey: short, secretKey: s3cret-key}]", "at least 7 characters"),
        ("accounts: [{accessKey: long-enough, secretKey: s3cret}]", "at least 7 characters"),
        ("accounts: [{accessKey: long-enough}]", "at least 7 characters"),
        ("accounts: [{accessKey: a-good-key, secretKey: s3cret-key, topicPerms: [a=READ]}]", "name=PUB|SUB"),
        ("accounts: [{accessKey: a-good-key, secretKey: s3cret-key, groupPerms: [a]}]", "name=PUB|SUB"),
        ("accounts: [{accessKey: a-good-key, secretKey: s3cret-key, whiteRemoteAddress: x}]", "neither IPv4"),
        ("globalWhiteRemoteAddresses: [1.2.3]", "neither IPv4"),
        ("s3cret: \t- [", "cannot be read"),
    ],
)
def test_wrong_files_are_named_and_their_secrets_are_not(tmp_path: Path, text: str, words: str) -> None:
    path = write(tmp_path / "plain_acl.yml", text)
    with pytest.raises(ConfigError, match=r"plain_acl\.yml") as caught:
        load_file(path)
    assert words in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_missing_and_unreadable_files_are_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load_file(tmp_path / "nothing.yml")
    (tmp_path / "binary.yml").write_bytes(b"\xff\xfe\x00accounts")
    with pytest.raises(ConfigError, match="not YAML"):
        load_file(tmp_path / "binary.yml")


def test_yaml_builds_no_objects(tmp_path: Path) -> None:
    path = write(tmp_path / "plain_acl.yml", "accounts: !!python/object/apply:os.getcwd []")
    with pytest.raises(ConfigError):
        load_file(path)


def test_files_are_written_for_their_owner_only_and_read_back(tmp_path: Path) -> None:
    path = write(tmp_path / "plain_acl.yml", "accounts: []")
    path.chmod(0o644)
    content = {"accounts": [{"accessKey": "schlüssel", "secretKey": "0123456789"}]}
    before = stamp_of(path)
    stamp = write_file(path, content)
    assert stamp == stamp_of(path) != before
    assert path.stat().st_mode & 0o777 == 0o600
    assert load_file(path).content == content
    assert [entry.name for entry in tmp_path.iterdir()] == ["plain_acl.yml"]


def test_secrets_are_not_shown(tmp_path: Path) -> None:
    text = "accounts: [{accessKey: a-good-key, secretKey: s3cret-key}]"
    file = load_file(write(tmp_path / "plain_acl.yml", text))
    assert "s3cret" not in repr(file)
    assert "s3cret" not in repr(file.accounts)
