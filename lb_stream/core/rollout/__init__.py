"""Rollouts: which broker is restarted next, where its bundles go, and how loads are evened out.

`progress` says how far it is, `order` which broker is next, `destinations` where the bundles of a
begun broker go, `levelling` which bundles the last ones get. All of them read `loads`.
"""
