"""Events per second of the daemon's intake and routing, beside a bare pull-and-ack loop on the same Pub/Sub server.

50,000 notifications as GCS publishes them, one half for one of 200 rules, the other half for none. The daemon's side is
the real puller, parser and rule index; a matched file's batch, which waits for GCS and BigQuery, is cut off. Both sides
use Google's `SubscriberAsyncClient` with the same number of concurrent pulls. Rounds alternate, since machines are
noisy. `python -m bench.intake` prints a table and, last, one line of JSON.
"""

import asyncio
import json
import resource
import statistics
import time
from typing import Any

import grpc.aio
from google.pubsub_v1 import PublisherAsyncClient, SubscriberAsyncClient
from google.pubsub_v1.services.publisher.transports import PublisherGrpcAsyncIOTransport
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcAsyncIOTransport
from google.pubsub_v1.types import PubsubMessage

from bench.servers import pubsub_server
from ingestd.batch.news import News
from ingestd.gcp.pubsub import PubSubSubscription
from ingestd.intake.deadletters import DeadLetters
from ingestd.intake.notifications import ObjectEvent
from ingestd.intake.puller import Puller, PullLimits
from ingestd.intake.receipts import Receipt
from ingestd.intake.router import Router
from ingestd.model.clock import SystemClock
from ingestd.model.objects import ObjectRef
from ingestd.ops import collector
from ingestd.ports import Message
from ingestd.retry import Retrier
from ingestd.rules.loading import RuleBook
from ingestd.rules.rule import Rule
from ingestd.rules.schema import RuleSpec

EVENTS = 50_000
ROUNDS = 3
PULLS = 4
TARGET = 0.9
TOPIC, BARE, DAEMON = (
    "projects/bench/topics/files",
    "projects/bench/subscriptions/bare",
    "projects/bench/subscriptions/daemon",
)


def notification(number: int) -> PubsubMessage:
    name = f"data/table{number % 200}/2024/01/01/part-{number:06d}.json" if number % 2 else f"other/{number:06d}.bin"
    generation = 1_700_000_000_000_000 + number
    resource_ = {
        "kind": "storage#object",
        "id": f"bench-trigger/{name}/{generation}",
        "selfLink": f"https://www.googleapis.com/storage/v1/b/bench-trigger/o/{name}",
        "name": name,
        "bucket": "bench-trigger",
        "generation": str(generation),
        "metageneration": "1",
        "contentType": "application/json",
        "timeCreated": "2024-01-01T00:00:00.000Z",
        "updated": "2024-01-01T00:00:00.000Z",
        "storageClass": "STANDARD",
        "size": "1234",
        "md5Hash": "1B2M2Y8AsgTpgAmY7PhCfg==",
        "mediaLink": f"https://storage.googleapis.com/download/storage/v1/b/bench-trigger/o/{name}?alt=media",
        "crc32c": "AAAAAA==",
        "etag": "CAE=",
    }
    attributes = {
        "notificationConfig": "projects/_/buckets/bench-trigger/notificationConfigs/1",
        "eventType": "OBJECT_FINALIZE",
        "payloadFormat": "JSON_API_V1",
        "bucketId": "bench-trigger",
        "objectId": name,
        "objectGeneration": str(generation),
        "eventTime": "2024-01-01T00:00:00.000000Z",
    }
    return PubsubMessage(data=json.dumps(resource_).encode(), attributes=attributes)


def rule_book() -> RuleBook:
    def rule(number: int) -> Rule:
        document = {
            "When": {"Prefix": f"/data/table{number}/", "Suffix": ".json"},
            "Dest": {"Table": f"bench.table{number}_$Date"},
            "OnSuccess": [{"Action": "delete"}],
        }
        return Rule.of(RuleSpec.model_validate(document), f"rules/{number}.json")

    return RuleBook.of([rule(number) for number in range(200)])


async def bare(subscriber: SubscriberAsyncClient) -> float:
    """The simplest consumer: pull, acknowledge, repeat."""
    left = EVENTS
    start = time.perf_counter()

    async def loop() -> None:
        nonlocal left
        while left > 0:
            response = await subscriber.pull(subscription=BARE, max_messages=1000, timeout=20)
            if response.received_messages:
                left -= len(response.received_messages)
                ids = [received.ack_id for received in response.received_messages]
                await subscriber.acknowledge(subscription=BARE, ack_ids=ids, timeout=20)

    pulls = [asyncio.create_task(loop()) for _ in range(PULLS)]
    await asyncio.wait(pulls, return_when=asyncio.FIRST_COMPLETED)
    while left > 0:
        await asyncio.sleep(0.005)
    seconds = time.perf_counter() - start
    for pull in pulls:
        pull.cancel()
    await asyncio.gather(*pulls, return_exceptions=True)
    return EVENTS / seconds


async def daemon(subscriber: SubscriberAsyncClient, book: RuleBook) -> float:
    """The puller, the parser and the rule index; a matched file's batch would begin where `deliver` ends."""
    clock, seen, matched = SystemClock(), 0, 0
    unused: Any = None
    done = asyncio.Event()

    class Counted:
        def deliver(self, event: ObjectEvent, rule: Rule | None, receipt: Receipt) -> None:
            nonlocal matched
            matched += 1
            receipt.ack()

    dead_letters = DeadLetters(unused, unused, clock, News(), topic="", folder=ObjectRef("bench", "errors"))
    router = Router(
        subscription=DAEMON, route=book.index.route, collect=Counted(), dead_letters=dead_letters, refusals=unused
    )

    def handle(message: Message, receipt: Receipt) -> Any:
        nonlocal seen
        seen += 1
        if seen == EVENTS:
            done.set()
        return router.handle(message, receipt)

    subscription = PubSubSubscription(subscriber, DAEMON, Retrier())
    puller = Puller(subscription, handle, clock, PullLimits(concurrent_pulls=PULLS))
    start = time.perf_counter()
    running = asyncio.create_task(puller.run())
    await done.wait()
    puller.stop()
    await running  # everything is settled and acknowledged
    seconds = time.perf_counter() - start
    assert matched == EVENTS // 2, matched
    return EVENTS / seconds


async def measure(address: str) -> dict[str, Any]:
    book, messages = rule_book(), [notification(number) for number in range(EVENTS)]
    options = (("grpc.max_receive_message_length", -1),)
    async with (
        grpc.aio.insecure_channel(address, options=options) as publishing,
        grpc.aio.insecure_channel(address, options=options) as subscribing,
    ):
        publisher = PublisherAsyncClient(transport=PublisherGrpcAsyncIOTransport(channel=publishing))
        subscriber = SubscriberAsyncClient(transport=SubscriberGrpcAsyncIOTransport(channel=subscribing))
        await publisher.create_topic(name=TOPIC)
        for name in (BARE, DAEMON):
            await subscriber.create_subscription(name=name, topic=TOPIC, ack_deadline_seconds=60)
        bare_rates, own_rates, memory = [], [], []
        collector.settle()  # as the daemon does, for both sides
        for _ in range(ROUNDS):
            for first in range(0, EVENTS, 500):
                await publisher.publish(topic=TOPIC, messages=messages[first : first + 500])
            bare_rates.append(await bare(subscriber))
            own_rates.append(await daemon(subscriber, book))
            memory.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
    ratios = [own / other for own, other in zip(own_rates, bare_rates, strict=True)]
    return {
        "benchmark": "intake",
        "events": EVENTS,
        "bare_per_s": [round(rate) for rate in bare_rates],
        "intake_per_s": [round(rate) for rate in own_rates],
        "ratio": round(statistics.median(ratios), 3),
        "target": TARGET,
        "met": statistics.median(ratios) >= TARGET,
        "peak_rss_mib": memory,
    }


def main() -> None:
    with pubsub_server() as endpoint:
        figures = asyncio.run(measure(endpoint))
    print(f"{'round':>5} {'bare loop/s':>12} {'intake+routing/s':>17} {'ratio':>6} {'peak RSS MiB':>13}")
    rows = zip(figures["bare_per_s"], figures["intake_per_s"], figures["peak_rss_mib"], strict=True)
    for number, (other, own, memory) in enumerate(rows, 1):
        print(f"{number:>5} {other:>12,} {own:>17,} {own / other:>6.2f} {memory:>13,}")
    print(f"median ratio {figures['ratio']} (target ≥ {TARGET}: {'met' if figures['met'] else 'MISSED'})")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
