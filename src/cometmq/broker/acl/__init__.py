"""Who may do what: accounts from ``plain_acl.yml``, the resources a request touches, and the decision."""

from __future__ import annotations

from cometmq.broker.acl.access import AccessControl, AccessDenied

__all__ = ["AccessControl", "AccessDenied"]
