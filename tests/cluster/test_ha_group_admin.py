"""Groups that elect their master, for people: whom a switch may go to, accounts, offsets while nobody is master."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from acl_kit import Signer, access_key, secret_key, write_accounts
from ha_group_kit import Group, member, running_group
from ha_kit import send_many
from wire_client import until

from cometmq.protocol.codes import RequestCode


def test_accounts_are_there_at_the_next_master_who_must_be_in_sync(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        group = Group(tmp_path)
        try:
            for number in group.ids:
                home = tmp_path / f"home-{number}"
                write_accounts(home, {"admin": {"admin": True}})
                await group.start(number, acl_enable=True, rocketmq_home=str(home))
            first = await group.elected()
            await until(lambda: member(first).has_lease, limit_s=20)
            admin = Signer(first, "admin")  # type: ignore[arg-type] # anything with an address
            account = {
                "accessKey": access_key("new"),
                "secretKey": secret_key("new"),
                "topicPerms": "T=PUB|SUB",
            }
            assert (await admin.call(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, account)).code == 0
            for follower in group.followers:  # they had it before the answer
                path = Path(follower.config.rocketmq_home) / "conf" / "plain_acl.yml"
                assert access_key("new") in path.read_text()
            assert first.group is not None
            already = f"replica {first.replica_id} is the master already"
            assert await first.group.hand_over(first.replica_id) == already
            assert "replica 9 is not in sync" in (await first.group.hand_over(9) or "")
            assert await first.group.hand_over() is None
            second = await group.elected()
            assert second is not first
            anybody, new = Signer(second, "nobody"), Signer(second, "new")  # type: ignore[arg-type]
            fields = {"topic": "T", "queueId": 0}
            assert (await anybody.call(RequestCode.GET_MAX_OFFSET, fields)).code != 0
            assert (await new.call(RequestCode.GET_MAX_OFFSET, fields)).code == 0
            for signer in (admin, anybody, new):
                await signer.close()
        finally:
            await group.close()

    run(main())


def test_offsets_committed_while_nobody_is_master_reach_the_next_one(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with running_group(tmp_path, ha_forward_ms=0) as group:
            first = await group.elected()
            assert set(await send_many(group.client(first), "T", 20)) == {0}
            first.offsets.commit("ahead", "T", 0, 12)
            first.offsets.commit("behind", "T", 0, 3)
            keeper = group.followers[0]
            await until(lambda: keeper.offsets.query("behind", "T", 0) == 3)
            others = [number for number, broker in group.brokers.items() if broker is not keeper]
            for number in others:  # two of three voters are gone: nobody can be elected
                await asyncio.to_thread(group.brokers[number].group.controller.stop)
            for number in others:
                await group.stop(number)
            assert not member(keeper).is_master
            consumer = group.client(keeper)
            for name, offset in (("ahead", 7), ("behind", 9), ("fresh", 5)):
                fields = {"consumerGroup": name, "topic": "T", "queueId": 0, "commitOffset": offset}
                assert (await consumer.call(RequestCode.UPDATE_CONSUMER_OFFSET, fields)).code == 0
            for number in others:
                await group.start(number)
            await group.elected()
            for name, offset in (("ahead", 12), ("behind", 9), ("fresh", 5)):
                for broker in group.brokers.values():
                    await until(
                        lambda b=broker, n=name, o=offset: b.offsets.query(n, "T", 0) == o, limit_s=20
                    )
            master = await group.elected()
            follower = group.followers[0]
            fields = {"consumerGroup": "fresh", "topic": "T", "queueId": 0, "commitOffset": 15}
            assert (await group.client(follower).call(RequestCode.UPDATE_CONSUMER_OFFSET, fields)).code == 0
            await until(lambda: master.offsets.query("fresh", "T", 0) == 15)
            await until(lambda: not any(broker.group.provisional for broker in group.brokers.values()))

    run(main())
