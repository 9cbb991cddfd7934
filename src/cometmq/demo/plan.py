"""The numbers of the story: how long things take, how many users come, how many hands there are."""

from __future__ import annotations

from dataclasses import dataclass

TOPIC = "registrations"  # what the service sends: one message a user
# What the followers send when they are done: tag is the step, key the user
STEPS_TOPIC = "registration-steps"
REGISTER = "register"
FOLLOWERS = ("sms", "push", "coupon")
STEPS = (REGISTER, *FOLLOWERS)
QUEUES = 4

WRITE_S = 0.050  # the service's own write
CALL_S = 0.050  # one call of SMS, push or coupon
TICK_S = 0.5  # a line of a chart


def group_of(step: str) -> str:
    """The consumer group of a follower."""
    return f"{step}-followers"


@dataclass(frozen=True, slots=True)
class Plan:
    """One telling. Twenty workers serve 100 users a second at 200 ms each, 360 at 55 ms; the surge is between."""

    workers: int = 20
    calm_users_per_s: int = 20
    calm_s: float = 2.0
    surge_users_per_s: int = 250
    surge_s: float = 6.0
    patience_s: float = 2.0  # then a user goes away
    follower_concurrency: int = 8  # 160 users a second: the surge has to wait in the queue
    kill_after_s: float = 2.5  # into the surge
    down_s: float = 1.0  # until the killed follower is started again
    drain_limit_s: float = 60.0

    @property
    def surge_users(self) -> int:
        return round(self.surge_users_per_s * self.surge_s)

    @property
    def depth_scale(self) -> int:
        """Queue depth that fills a bar: about what a follower that was down for a while has to catch up."""
        rate = self.follower_concurrency / CALL_S
        return round(max(1.0, self.surge_users - rate * (self.surge_s - self.down_s) + rate))


QUICK = Plan(calm_s=0.4, surge_s=1.5, patience_s=0.6, kill_after_s=0.6, down_s=0.2)
