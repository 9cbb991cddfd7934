"""Accounts while the broker runs: changed files, more files, white lists, administration 50 to 54."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from acl_kit import (
    ACCOUNTS,
    SECRET_MARK,
    Signer,
    access_key,
    guarded_broker,
    is_denied,
    secret_key,
    write_accounts,
)
from live_broker import LiveBroker, eventually, live_broker
from test_acl_table import pull, send_v1, send_v2

import cometmq.broker.broker as broker_module
from cometmq.errors import ConfigError
from cometmq.metrics.broker import broker_families
from cometmq.metrics.exposition import render
from cometmq.protocol.acl_signature import sign
from cometmq.protocol.codes import RequestCode as Code
from cometmq.protocol.command import RemotingCommand


@pytest.fixture
def quick_reload(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_module, "ACCOUNTS_RELOAD_MS", 20)


async def until_allowed(signer: Signer, request: Any, *, wanted: bool = True) -> None:
    for _ in range(500):
        if is_denied(await signer.call(*request)) != wanted:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"not {'allowed' if wanted else 'refused'} in time")


# -- files -------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("quick_reload")
def test_changed_files_count_within_seconds(run: Any, tmp_path: Path) -> None:
    """Files are read again every 5 s, quicker in this test."""

    async def main() -> None:
        async with guarded_broker(tmp_path) as live:
            signer = Signer(live, "app")
            assert is_denied(await signer.call(*send_v2("TopicElse")))
            write_accounts(tmp_path / "home", {"app": {"defaultTopicPerm": "PUB"}})
            await until_allowed(signer, send_v2("TopicElse"))
            assert is_denied(await signer.call(*pull("TopicA", "GroupA")))
            write_accounts(tmp_path / "home", {"other": {}})
            await until_allowed(signer, send_v2("TopicElse"), wanted=False)
            await signer.close()

    run(main())


def test_the_interval_of_reloading_is_five_seconds() -> None:
    assert broker_module.ACCOUNTS_RELOAD_MS == 5_000


@pytest.mark.usefixtures("quick_reload")
def test_file_that_becomes_wrong_keeps_its_last_good_content(
    run: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with guarded_broker(tmp_path) as live:
            signer = Signer(live, "app")
            path = tmp_path / "home/conf/plain_acl.yml"
            path.write_text(f"accounts: [{{accessKey: x, secretKey: {SECRET_MARK}}}]")
            await eventually(lambda: "access file not read again" in caplog.text)
            await asyncio.sleep(0.1)
            assert caplog.text.count("access file not read again") == 1
            assert SECRET_MARK not in caplog.text
            assert not is_denied(await signer.call(*send_v2("TopicA")))
            path.unlink()
            await eventually(lambda: caplog.text.count("access file not read again") == 2)
            assert not is_denied(await signer.call(*send_v2("TopicA")))
            write_accounts(tmp_path / "home", {"app": {}})
            await until_allowed(signer, send_v2("TopicA"), wanted=False)
            await signer.close()

    run(main())


@pytest.mark.usefixtures("quick_reload")
def test_more_files_below_conf_acl_come_and_go(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        directory = tmp_path / "home/conf/acl/deep"
        async with guarded_broker(tmp_path) as live:
            signer = Signer(live, "late")
            assert is_denied(await signer.call(*send_v2("TopicA")))
            directory.mkdir(parents=True)
            account = {"accessKey": access_key("late"), "secretKey": secret_key("late")}
            account |= {"defaultTopicPerm": "PUB|SUB"}
            (directory / "tools.yml").write_text(yaml.safe_dump({"accounts": [account]}))
            await asyncio.sleep(0.1)
            assert is_denied(await signer.call(*send_v2("TopicA")))
            (directory / "team.yaml").write_text(yaml.safe_dump({"accounts": [account]}))
            await until_allowed(signer, send_v2("TopicA"))
            # The first file that names an account wins.
            (directory / "a.yml").write_text(
                yaml.safe_dump({"accounts": [{**account, "defaultTopicPerm": "DENY"}]})
            )
            await until_allowed(signer, send_v2("TopicA"), wanted=False)
            (directory / "a.yml").unlink()
            await until_allowed(signer, send_v2("TopicA"))
            (directory / "team.yaml").unlink()
            await until_allowed(signer, send_v2("TopicA"), wanted=False)
            await signer.close()

    run(main())


def test_default_file_is_made_when_it_is_missing_and_lets_nobody_in(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        settings = {"acl_enable": True, "rocketmq_home": str(tmp_path / "home")}
        async with live_broker(tmp_path, **settings) as live:
            assert (tmp_path / "home/conf/plain_acl.yml").stat().st_mode & 0o777 == 0o600
            signer = Signer(live, "admin")
            assert is_denied(await signer.call(*send_v2("TopicA")))
            await signer.close()

    run(main())


def test_default_file_can_have_another_name(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        write_accounts(tmp_path / "home").rename(tmp_path / "home/conf/mine.yml")
        settings = {
            "acl_enable": True, "rocketmq_home": str(tmp_path / "home"),
            "system_properties": {"rocketmq.acl.plain.file": "/conf/mine.yml"},
        }  # fmt: skip
        async with live_broker(tmp_path, **settings) as live:
            signer = Signer(live, "admin")
            assert not is_denied(await signer.call(*send_v2("TopicA")))
            await signer.close()

    run(main())


@pytest.mark.parametrize("wrong", ["file", "home"])
def test_broker_does_not_start_without_usable_accounts(run: Any, tmp_path: Path, wrong: str) -> None:
    async def main() -> None:
        home = tmp_path / "home"
        (home / "conf").mkdir(parents=True)
        (home / "conf/plain_acl.yml").write_text("accounts: [{accessKey: x}]")
        settings: dict[str, Any] = {"rocketmq_home": str(home) if wrong == "file" else ""}
        with pytest.raises(ConfigError, match="plain_acl"):
            async with live_broker(tmp_path, acl_enable=True, **settings):
                pass

    run(main())


# -- white lists -------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("quick_reload")
def test_white_addresses_need_no_account(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with guarded_broker(tmp_path) as live:
            stranger = Signer(live, None)
            local, wrong = Signer(live, "local", secret="anything"), Signer(live, "app", secret="anything")
            assert not is_denied(await local.call(*send_v2("TopicNo")))
            assert not is_denied(await local.call(Code.GET_BROKER_CLUSTER_ACL_CONFIG))
            assert is_denied(await wrong.call(*send_v2("TopicA")))
            assert is_denied(await stranger.call(*send_v2("TopicA")))
            write_accounts(tmp_path / "home", globalWhiteRemoteAddresses=["10.0.0.1", "127.0.0.{1,2}"])
            await until_allowed(stranger, send_v2("TopicA"))
            assert not is_denied(await wrong.call(*send_v2("TopicA")))
            for signer in (stranger, local, wrong):
                await signer.close()

    run(main())


# -- administration ----------------------------------------------------------------------------------------------


def files_of(home: Path) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((home / "conf/plain_acl.yml").read_text())
    return content


async def update(signer: Signer, name: str, **fields: str) -> RemotingCommand:
    account = {"accessKey": access_key(name), "secretKey": secret_key(name), "admin": "false"}
    return await signer.call(Code.UPDATE_AND_CREATE_ACL_CONFIG, {**account, **fields})


def test_account_is_created_changed_and_deleted(run: Any, tmp_path: Path) -> None:
    """Codes 50 and 51; what is not named keeps its value, and the version counts."""

    async def main() -> None:
        async with guarded_broker(tmp_path) as live:
            admin, new = Signer(live, "admin"), Signer(live, "new")
            created = await update(
                admin, "new", defaultTopicPerm="PUB", topicPerms="TopicB=SUB,TopicC=PUB|SUB",
                groupPerms="G1=SUB", whiteRemoteAddress="",
            )  # fmt: skip
            assert created.code == 0, created
            assert not is_denied(await new.call(*send_v2("TopicA")))
            assert is_denied(await new.call(*send_v2("TopicB")))
            assert not is_denied(await new.call(*pull("TopicB", "G1")))
            assert files_of(tmp_path / "home")["dataVersion"][0]["counter"] == 1
            changed = {"accessKey": access_key("new"), "defaultTopicPerm": "DENY"}
            assert (await admin.call(Code.UPDATE_AND_CREATE_ACL_CONFIG, changed)).code == 0
            assert is_denied(await new.call(*send_v2("TopicA")))
            assert not is_denied(await new.call(*send_v2("TopicC")))
            (item,) = [
                one
                for one in files_of(tmp_path / "home")["accounts"]
                if one["accessKey"] == access_key("new")
            ]
            assert item["topicPerms"] == ["TopicB=SUB", "TopicC=PUB|SUB"]
            assert (await admin.call(Code.DELETE_ACL_CONFIG, {"accessKey": access_key("new")})).code == 0
            assert is_denied(await new.call(*send_v2("TopicC")))
            gone = await admin.call(Code.DELETE_ACL_CONFIG, {"accessKey": access_key("new")})
            assert (gone.code, gone.remark) == (
                210,
                f"The accesskey[{access_key('new')}] corresponding to accessConfig has been deleted failed.",
            )
            assert files_of(tmp_path / "home")["dataVersion"][0]["counter"] == 3
            assert len(files_of(tmp_path / "home")["accounts"]) == len(ACCOUNTS)
            await admin.close()
            await new.close()

    run(main())


@pytest.mark.parametrize(
    ("fields", "remark"),
    [
        ({"accessKey": "short"}, "The accessKey=short and secretKey=*** cannot be null and length should"),
        ({"secretKey": "s3cret"}, "cannot be null and length should longer than 6"),
        ({"topicPerms": "TopicA=READ"}, "Parse resource permission error for READ.\nThe expected permissions are"),
        ({"groupPerms": "GroupA"}, "Parse resource permission error for"),
        ({"defaultTopicPerm": "ALL"}, "Parse resource permission error for ALL."),
        ({"whiteRemoteAddress": "somewhere"}, "neither IPv4 nor IPv6"),
    ],
)  # fmt: skip
def test_wrong_accounts_are_refused_and_change_nothing(
    run: Any, tmp_path: Path, fields: Mapping[str, str], remark: str
) -> None:
    async def main() -> None:
        async with guarded_broker(tmp_path) as live:
            before = (tmp_path / "home/conf/plain_acl.yml").read_bytes()
            admin = Signer(live, "admin")
            response = await update(admin, "wrong", **fields)
            assert response.code == 209
            assert remark in (response.remark or "")
            assert SECRET_MARK not in (response.remark or "")
            assert (tmp_path / "home/conf/plain_acl.yml").read_bytes() == before
            await admin.close()

    run(main())


def test_account_is_changed_in_the_file_that_names_it(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        team = tmp_path / "home/conf/acl/team.yml"
        team.parent.mkdir(parents=True)
        team.write_text(
            yaml.safe_dump({"accounts": [{"accessKey": access_key("team"), "secretKey": secret_key("team")}]})
        )
        async with guarded_broker(tmp_path) as live:
            admin = Signer(live, "admin")
            assert (await update(admin, "team", defaultTopicPerm="PUB")).code == 0
            assert yaml.safe_load(team.read_text())["accounts"][0]["defaultTopicPerm"] == "PUB"
            assert "dataVersion" not in files_of(tmp_path / "home")
            response = await admin.call(Code.GET_BROKER_CLUSTER_ACL_INFO)
            info = response.ext_fields or {}
            versions = json.loads(info["allAclFileVersion"])
            assert versions[str(team)]["counter"] == 1
            assert versions[str(tmp_path / "home/conf/plain_acl.yml")]["counter"] == 0
            assert json.loads(info["version"])["counter"] == 0
            assert (info["brokerName"], info["clusterName"]) == ("broker-a", "C1")
            assert info["brokerAddr"] == live.address
            await admin.close()

    run(main())


def test_changes_at_the_same_time_all_count(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with guarded_broker(tmp_path) as live:
            admin = Signer(live, "admin")
            answers = await asyncio.gather(*(update(admin, f"new-{number}") for number in range(10)))
            assert {answer.code for answer in answers} == {0}
            content = files_of(tmp_path / "home")
            assert len(content["accounts"]) == len(ACCOUNTS) + 10
            assert content["dataVersion"][0]["counter"] == 10
            await admin.close()

    run(main())


def test_change_by_hand_just_before_is_not_lost(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with guarded_broker(tmp_path) as live:
            admin = Signer(live, "admin")
            write_accounts(tmp_path / "home", {**ACCOUNTS, "by-hand": {}})
            assert (await update(admin, "new")).code == 0
            keys = {account["accessKey"] for account in files_of(tmp_path / "home")["accounts"]}
            assert {access_key("by-hand"), access_key("new")} <= keys
            await admin.close()

    run(main())


def test_white_addresses_are_replaced(run: Any, tmp_path: Path) -> None:
    """Code 53."""

    async def main() -> None:
        async with guarded_broker(tmp_path) as live:
            admin, stranger = Signer(live, "admin"), Signer(live, None)
            code = Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG
            path = tmp_path / "home/conf/plain_acl.yml"
            assert (await admin.call(code, {"globalWhiteAddrs": "10.0.0.1, 127.0.0.*"})).code == 0
            assert not is_denied(await stranger.call(*send_v2("TopicA")))
            assert files_of(tmp_path / "home")["globalWhiteRemoteAddresses"] == ["10.0.0.1", "127.0.0.*"]
            fields = {"globalWhiteAddrs": "10.0.0.1", "aclFileFullPath": str(path)}
            assert (await admin.call(code, fields)).code == 0
            assert is_denied(await stranger.call(*send_v2("TopicA")))
            for wrong in (
                {"globalWhiteAddrs": "nowhere"},
                {"globalWhiteAddrs": "10.0.0.1", "aclFileFullPath": "/etc/passwd"},
                {"globalWhiteAddrs": "10.0.0.1", "aclFileFullPath": str(path) + "/../../../x.yml"},
            ):
                assert (await admin.call(code, wrong)).code == 211
            await admin.close()
            await stranger.close()

    run(main())


def test_accounts_are_shown_to_administrators(run: Any, tmp_path: Path) -> None:
    """Code 54, in the form that tools print."""

    async def main() -> None:
        async with guarded_broker(tmp_path) as live:
            admin = Signer(live, "admin")
            response = await admin.call(Code.GET_BROKER_CLUSTER_ACL_CONFIG)
            body = json.loads(bytes(response.body))
            assert body["globalWhiteAddrs"] == []
            shown = {account["accessKey"]: account for account in body["plainAccessConfigs"]}
            assert set(shown) == {access_key(name) for name in ACCOUNTS}
            assert shown[access_key("app")]["topicPerms"] == ACCOUNTS["app"]["topicPerms"]
            assert shown[access_key("admin")]["admin"] is True
            await admin.close()

    run(main())


def test_without_access_control_the_administration_says_so(run: Any, tmp_path: Path) -> None:
    """The original answers 50 with a null pointer and leaves 52 and 54 without an answer."""

    async def main() -> None:
        async with live_broker(tmp_path) as live:
            signer = Signer(live, None)
            key = {"accessKey": "some-access-key"}
            for code, failure, fields in (
                (50, 209, key), (51, 210, key), (52, 1, {}), (53, 211, {"globalWhiteAddrs": "*"}), (54, 1, {}),
            ):  # fmt: skip
                response = await signer.call(code, fields)
                assert response.code == failure
                assert "acl is not enabled" in (response.remark or "")
            await signer.close()

    run(main())


def test_file_that_cannot_be_written_is_an_error_and_the_old_accounts_count(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with guarded_broker(tmp_path) as live:
            admin, new = Signer(live, "admin"), Signer(live, "new")

            def full(*_: object) -> None:
                raise OSError(28, "No space left on device")

            monkeypatch.setattr("cometmq.broker.acl.access.write_file", full)
            response = await update(admin, "new", defaultTopicPerm="PUB")
            assert response.code == 209
            assert "No space left on device" in (response.remark or "")
            assert is_denied(await new.call(*send_v2("TopicA")))
            await admin.close()
            await new.close()

    run(main())


# -- secrets -----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("quick_reload")
def test_secrets_appear_nowhere_but_where_they_belong(
    run: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Logs at every level, error texts, metrics, settings, figures; only code 54 shows them, to administrators."""
    caplog.set_level(logging.DEBUG)

    async def main() -> None:
        properties = {"tls.server.keyPassword": SECRET_MARK, "tls.client.keyPassword": SECRET_MARK}
        async with guarded_broker(tmp_path, system_properties=properties) as live:
            texts = await every_answer(live)
            texts.append(render(broker_families(live.broker)))
            assert SECRET_MARK not in "\n".join(texts)

    run(main())
    assert "access file" in caplog.text
    assert SECRET_MARK not in caplog.text


async def every_answer(live: LiveBroker) -> list[str]:
    """Remarks, fields and bodies of good and bad requests."""
    signers = [Signer(live, name) for name in (*ACCOUNTS, "stranger")]
    signers += [Signer(live, "app", secret=f"{SECRET_MARK}-but-wrong"), Signer(live, None)]
    texts: list[str] = []
    for signer in signers:
        for request in (
            send_v1("TopicA"), send_v2("TopicNo"), (Code.GET_BROKER_CONFIG, {}, b""), (999, {}, b""),
            (Code.GET_BROKER_RUNTIME_INFO, {}, b""), (Code.GET_BROKER_CLUSTER_ACL_INFO, {}, b""),
            (Code.UPDATE_AND_CREATE_ACL_CONFIG, {"accessKey": "x", "secretKey": SECRET_MARK}, b""),
            (Code.UPDATE_AND_CREATE_ACL_CONFIG, {"secretKey": SECRET_MARK}, b""),
            (Code.UPDATE_AND_CREATE_ACL_CONFIG,
             {"accessKey": "good-enough", "secretKey": SECRET_MARK + "-long", "topicPerms": "a=b"}, b""),
            (Code.UPDATE_AND_CREATE_TOPIC, {}, b""), (Code.HEART_BEAT, {}, b"not json"),
        ):  # fmt: skip
            texts += _texts(await signer.call(*request))
        await signer.close()
    admin = Signer(live, "admin")
    texts += _texts(await update(admin, "fresh"))
    (Path(live.broker.config.rocketmq_home) / "conf/plain_acl.yml").write_text(f"accounts: [{SECRET_MARK}")
    await asyncio.sleep(0.1)
    command = RemotingCommand(code=10, ext_fields={"topic": "x"}, body=b"")
    sign(command, access_key("app"), secret_key("app"))
    texts += _texts(await admin.remoting.invoke(live.address, command, 5_000))
    await admin.close()
    return texts


def _texts(response: RemotingCommand) -> list[str]:
    return [str(response.remark), str(response.ext_fields), bytes(response.body).decode("utf-8", "replace")]
