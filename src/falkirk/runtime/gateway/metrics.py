"""The subscribers of a gateway, and the rows that it reduces, for Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from falkirk.connectors.http.messages import Reply


class SubscriberMetrics(Collector):
    """Since the gateway's start.

    >>> metrics = SubscriberMetrics(["totals"])
    >>> metrics.events["totals"] += 3
    >>> b'falkirk_subscriber_events_total{sink="totals"} 3.0' in Metrics(metrics).reply().body
    True
    """

    def __init__(self, sinks: Iterable[str]) -> None:
        none = dict.fromkeys(sinks, 0)
        self.subscribers = Counter(none)
        self.events = Counter(none)
        self.refused = Counter(none)
        self.cut = Counter(none)

    def collect(self) -> Iterable[Metric]:
        """All metrics, as of now."""
        subscribers = GaugeMetricFamily(
            "falkirk_subscribers", "Subscribers of a sink that this gateway has now.", labels=["sink"]
        )
        events = CounterMetricFamily(
            "falkirk_subscriber_events", "Records that subscribers of a sink got from this gateway.", labels=["sink"]
        )
        refused = CounterMetricFamily(
            "falkirk_subscribers_refused",
            "Subscribers that this gateway refused because it had enough (--subscribers).",
            labels=["sink"],
        )
        cut = CounterMetricFamily(
            "falkirk_subscribers_cut_off",
            "Subscribers that this gateway cut off because they took nothing.",
            labels=["sink"],
        )
        families = (subscribers, self.subscribers), (events, self.events), (refused, self.refused), (cut, self.cut)
        for family, counted in families:
            for sink, count in counted.items():
                family.add_metric([sink], count)
        return [subscribers, events, refused, cut]


class ReducedRows(Collector):
    """Rows of HTTP sources with `reduce=`, since the gateway's start.

    >>> rows = ReducedRows(["delays"])
    >>> rows.received["delays"] += 3
    >>> b'falkirk_http_rows_received_total{source="delays"} 3.0' in Metrics(rows).reply().body
    True
    """

    def __init__(self, sources: Iterable[str]) -> None:
        none = dict.fromkeys(sources, 0)
        self.received = Counter(none)
        self.logged = Counter(none)

    def collect(self) -> Iterable[Metric]:
        """All metrics, as of now."""
        received = CounterMetricFamily(
            "falkirk_http_rows_received",
            "Rows of requests that this gateway took, before it reduced them (reduce=).",
            labels=["source"],
        )
        logged = CounterMetricFamily(
            "falkirk_http_rows_logged",
            "Rows of requests that this gateway wrote to the topic of requests, after it reduced them (reduce=).",
            labels=["source"],
        )
        for family, counted in ((received, self.received), (logged, self.logged)):
            for source, count in counted.items():
                family.add_metric([source], count)
        return [received, logged]


class Metrics:
    """All that a gateway measures."""

    def __init__(self, *collectors: Collector) -> None:
        self._registry = CollectorRegistry()
        for collector in collectors:
            self._registry.register(collector)
        ProcessCollector(registry=self._registry)

    def reply(self) -> Reply:
        """All metrics, and those of the process, as text."""
        return Reply(200, generate_latest(self._registry), kind=CONTENT_TYPE_LATEST)
