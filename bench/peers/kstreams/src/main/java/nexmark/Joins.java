package nexmark;

import static nexmark.Topics.GRACE;
import static nexmark.Topics.NUMBER;
import static nexmark.Topics.NUMBERS;
import static nexmark.Topics.TEXT;
import static nexmark.Topics.WINDOW;

import java.time.Duration;
import java.util.Set;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.state.KeyValueStore;

/**
 * Queries that join.
 *
 * <p>Joins of streams have windows here: those of bids and auctions are right if all bids come within an hour of the
 * auction's opening.
 */
final class Joins {
  private static final Duration OPEN = Duration.ofHours(1);

  private final Topics topics;

  Joins(Topics topics) {
    this.topics = topics;
  }

  /** A join of tables, so it does not matter what comes first, or when. */
  void sellers() {
    // Without a cache: a person who waits in one would meet an auction twice, once there and once when written.
    KTable<String, Rows.Person> people =
        topics.stream("person", Rows.Person.class, Rows.Person::ts)
            .filter((key, person) -> Set.of("OR", "ID", "CA").contains(person.state()))
            .toTable(
                Materialized.<String, Rows.Person, KeyValueStore<Bytes, byte[]>>with(TEXT, Rows.json(Rows.Person.class))
                    .withCachingDisabled());
    KTable<String, long[]> auctions =
        topics.stream("auction", Rows.Sold.class, Rows.Sold::ts)
            .filter((key, auction) -> auction.category() == 10)
            .mapValues(auction -> new long[] {auction.id(), auction.seller()})
            .toTable(Materialized.with(TEXT, NUMBERS));
    KTable<String, Rows.Seller> sold =
        auctions.join(
            people,
            auction -> Long.toString(auction[1]),
            (auction, person) -> new Rows.Seller(person.name(), person.city(), person.state(), auction[0]),
            Materialized.with(TEXT, Rows.json(Rows.Seller.class)));
    topics.put(sold.toStream(), TEXT, Rows.Seller.class);
  }

  /** Each person once, each seller once in a window: so each pair once. */
  void registered() {
    KStream<String, long[]> selling =
        topics.stream("auction", Rows.Sold.class, Rows.Sold::ts)
            .map((key, auction) -> KeyValue.pair(Long.toString(auction.seller()), new long[] {auction.ts()}))
            .repartition(Repartitioned.with(TEXT, NUMBERS))
            .processValues(Seen.once(WINDOW, GRACE));
    KStream<String, Rows.Newcomer> pairs =
        topics.stream("person", Rows.Newcomer.class, Rows.Newcomer::ts)
            .join(
                selling,
                (person, sold) -> Topics.start(person.ts()) == Topics.start(sold[0]) ? person : null,
                JoinWindows.ofTimeDifferenceAndGrace(WINDOW, OPEN),
                StreamJoined.with(TEXT, Rows.json(Rows.Newcomer.class), NUMBERS))
            .filter((key, person) -> person != null);
    topics.put(
        pairs.mapValues(person -> new Rows.Registered(person.id(), person.name(), Topics.start(person.ts()))),
        TEXT,
        Rows.Registered.class);
  }

  void known() {
    KStream<String, Rows.Known> rows =
        topics.channelBids()
            .join(
                topics.lots().filter((key, lot) -> lot.category() == 10),
                Joins::known,
                JoinWindows.ofTimeDifferenceAndGrace(OPEN, OPEN),
                StreamJoined.with(TEXT, Rows.CHANNEL_BID, Rows.json(Rows.Lot.class)));
    topics.put(rows, TEXT, Rows.Known.class);
  }

  private static Rows.Known known(Rows.ChannelBid bid, Rows.Lot lot) {
    return new Rows.Known(
        bid.auction(), bid.bidder(), bid.price(), bid.channel(), bid.ts(), lot.item(), lot.seller(), lot.initialBid(),
        lot.reserve());
  }

  /** The table is read to its end before the first bid. */
  void lookedUp() {
    KStream<String, Rows.Beside> rows =
        topics.offers()
            .join(
                topics.sides(),
                (key, bid) -> Long.toString(bid.auction() % 10_000),
                (bid, side) -> new Rows.Beside(bid.auction(), bid.bidder(), bid.price(), side.value()));
    topics.put(rows, TEXT, Rows.Beside.class);
  }

  KTable<String, Rows.Sale> winning() {
    Serde<Rows.Sale> sales = Rows.json(Rows.Sale.class);
    KStream<String, long[]> bids = topics.offers().mapValues(bid -> new long[] {bid.bidder(), bid.price(), bid.ts()});
    return topics.lots()
        .join(
            bids,
            (lot, bid) -> bid[2] > lot.expires() ? null : sale(lot, bid),
            JoinWindows.ofTimeDifferenceAndGrace(Duration.ZERO, OPEN).after(OPEN),
            StreamJoined.with(TEXT, Rows.json(Rows.Lot.class), NUMBERS))
        .filter((key, sale) -> sale != null)
        .groupByKey(Grouped.with(TEXT, sales))
        .reduce(Joins::dearer, Materialized.with(TEXT, sales));
  }

  private static Rows.Sale sale(Rows.Lot lot, long[] bid) {
    return new Rows.Sale(lot.id(), lot.item(), lot.seller(), lot.category(), bid[0], bid[1], bid[2]);
  }

  private static Rows.Sale dearer(Rows.Sale one, Rows.Sale other) {
    boolean better =
        Topics.order(other.price(), other.ts(), other.bidder(), one.price(), one.ts(), one.bidder()) < 0;
    return better ? other : one;
  }

  void means() {
    KStream<Long, long[]> sums =
        winning()
            .groupBy((key, sale) -> KeyValue.pair(sale.category(), sale.price()), Grouped.with(NUMBER, NUMBER))
            .aggregate(
                () -> new long[2],
                (category, price, sum) -> new long[] {sum[0] + 1, sum[1] + price},
                (category, price, sum) -> new long[] {sum[0] - 1, sum[1] - price},
                Materialized.with(NUMBER, NUMBERS))
            .toStream();
    KStream<Long, Rows.Mean> means =
        sums.mapValues((key, sum) -> sum[0] == 0 ? null : new Rows.Mean(key, (double) sum[1] / sum[0]));
    topics.put(means, NUMBER, Rows.Mean.class);
  }
}
