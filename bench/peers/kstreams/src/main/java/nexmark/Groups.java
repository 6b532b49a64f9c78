package nexmark;

import static nexmark.Topics.GRACE;
import static nexmark.Topics.NUMBER;
import static nexmark.Topics.NUMBERS;
import static nexmark.Topics.RAW;
import static nexmark.Topics.TEXT;
import static nexmark.Topics.WINDOW;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.state.WindowStore;

/**
 * Queries that aggregate.
 *
 * <p>Windows are not suppressed until they close: the last ones never would, for nothing comes after the end. So their rows
 * are updates by key, and the cache leaves of those about one a commit.
 */
final class Groups {
  private static final Duration EVERY = Duration.ofSeconds(2);
  private static final Duration DAY = Duration.ofDays(1);
  private static final byte[] NOTHING = {};
  private static final int BEST = 10;
  private static final int OFFER = 3; // numbers of a bid in the ten best

  private final Topics topics;

  Groups(Topics topics) {
    this.topics = topics;
  }

  /** A count only grows: so the highest of all updates is that of the last ones. */
  void hot() {
    KStream<Long, long[]> counts =
        unread()
            .groupByKey(Grouped.with(TEXT, RAW))
            .windowedBy(TimeWindows.ofSizeAndGrace(WINDOW, GRACE).advanceBy(EVERY))
            .count(Materialized.with(TEXT, NUMBER))
            .toStream()
            .map((key, n) -> KeyValue.pair(key.window().start(), new long[] {n, Long.parseLong(key.key())}));
    KStream<long[], long[]> rows =
        counts
            .groupByKey(Grouped.with(NUMBER, NUMBERS))
            .aggregate(
                Leaders::none,
                (start, count, leaders) -> Leaders.with(leaders, count[0], count[1]),
                Materialized.with(NUMBER, NUMBERS))
            .toStream()
            .flatMap((start, leaders) -> Leaders.rows(start, leaders, 1));
    topics.put(
        rows.mapValues((key, row) -> row == null ? null : new Rows.Hot(key[0], row[0], row[1])),
        NUMBERS,
        Rows.Hot.class);
  }

  /** Each partition sends on only what is highest there. */
  void highest() {
    KStream<Long, Rows.Offer> candidates =
        topics.offers()
            .processValues(Seen.highest(WINDOW, GRACE, Rows.Offer::price))
            .selectKey((key, bid) -> Topics.start(bid.ts()));
    KStream<long[], long[]> rows =
        candidates
            .groupByKey(Grouped.with(NUMBER, Rows.json(Rows.Offer.class)))
            .aggregate(
                Leaders::none,
                (start, bid, leaders) -> Leaders.with(leaders, bid.price(), bid.auction(), bid.bidder(), bid.ts()),
                Materialized.with(NUMBER, NUMBERS))
            .toStream()
            .flatMap((start, leaders) -> Leaders.rows(start, leaders, 3));
    topics.put(
        rows.mapValues(
            (key, row) -> row == null ? null : new Rows.Highest(key[0], row[0], row[1], row[3], row[2])),
        NUMBERS,
        Rows.Highest.class);
  }

  /** A session that grows or merges has another key: its last row is deleted. */
  void sessions() {
    KStream<Windowed<Long>, Long> counts =
        byBidder()
            .groupByKey(Grouped.with(NUMBER, RAW))
            .windowedBy(SessionWindows.ofInactivityGapAndGrace(WINDOW, GRACE))
            .count(Materialized.with(NUMBER, NUMBER))
            .toStream();
    KStream<long[], Rows.Session> rows =
        counts.map((key, n) -> session(key.key(), key.window().start(), key.window().end(), n));
    topics.put(rows, NUMBERS, Rows.Session.class);
  }

  private static KeyValue<long[], Rows.Session> session(long bidder, long start, long last, Long n) {
    Rows.Session row = n == null ? null : new Rows.Session(bidder, start, last + WINDOW.toMillis(), n);
    return KeyValue.pair(new long[] {bidder, start, last}, row);
  }

  void counts() {
    KStream<Windowed<Long>, Long> counts =
        byBidder()
            .groupByKey(Grouped.with(NUMBER, RAW))
            .windowedBy(TimeWindows.ofSizeAndGrace(WINDOW, GRACE))
            .count(Materialized.with(NUMBER, NUMBER))
            .toStream();
    KStream<long[], Rows.Count> rows = counts.map((key, n) -> count(key.key(), key.window().start(), n));
    topics.put(rows, NUMBERS, Rows.Count.class);
  }

  private static KeyValue<long[], Rows.Count> count(long bidder, long start, long n) {
    return KeyValue.pair(new long[] {bidder, start}, new Rows.Count(bidder, start, n));
  }

  void days() {
    KStream<String, long[]> bids =
        topics.offers().map((key, bid) -> KeyValue.pair("", new long[] {bid.auction(), bid.bidder(), bid.price()}));
    KStream<long[], Rows.Day> rows = counted(bids).map((key, n) -> day(key.window().start(), n));
    topics.put(rows, NUMBERS, Rows.Day.class);
  }

  private static KeyValue<long[], Rows.Day> day(long start, long[] n) {
    long day = start / DAY.toMillis();
    return KeyValue.pair(new long[] {day}, new Rows.Day(day, n[0], n[1], n[2], n[3], n[4], n[5]));
  }

  void channels() {
    KStream<String, long[]> bids =
        topics.channelBids()
            .map((key, bid) -> KeyValue.pair(bid.channel(), new long[] {bid.auction(), bid.bidder(), bid.price()}));
    KStream<String, Rows.Channel> rows = counted(bids).map((key, n) -> channel(key.key(), key.window().start(), n));
    topics.put(rows, TEXT, Rows.Channel.class);
  }

  private static KeyValue<String, Rows.Channel> channel(String channel, long start, long[] n) {
    long day = start / DAY.toMillis();
    return KeyValue.pair(
        channel + " " + day, new Rows.Channel(channel, day, n[0], n[1], n[2], n[3], n[4], n[5]));
  }

  /** Of {auction, bidder, price}: bids, those of each rank, bidders and auctions of each key and day. */
  private KStream<Windowed<String>, long[]> counted(KStream<String, long[]> bids) {
    return bids.repartition(Repartitioned.with(TEXT, NUMBERS))
        .processValues(Seen.marked(DAY, GRACE))
        .groupByKey(Grouped.with(TEXT, NUMBERS))
        .windowedBy(TimeWindows.ofSizeAndGrace(DAY, GRACE))
        .aggregate(
            () -> new long[6],
            (key, bid, n) -> {
              n[0]++;
              n[rank(bid[0])]++;
              n[4] += bid[1];
              n[5] += bid[2];
              return n;
            },
            Materialized.<String, long[], WindowStore<Bytes, byte[]>>with(TEXT, NUMBERS))
        .toStream();
  }

  private static int rank(long price) {
    return price < 10_000 ? 1 : price < 1_000_000 ? 2 : 3;
  }

  void prices() {
    KStream<Windowed<String>, long[]> days =
        topics.offers()
            .groupByKey(Grouped.with(TEXT, Rows.json(Rows.Offer.class)))
            .windowedBy(TimeWindows.ofSizeAndGrace(DAY, GRACE))
            .aggregate(
                () -> new long[] {0, 0, 0, 0, Long.MAX_VALUE, Long.MIN_VALUE, 0},
                (key, bid, n) -> {
                  n[0]++;
                  n[rank(bid.price())]++;
                  n[4] = Math.min(n[4], bid.price());
                  n[5] = Math.max(n[5], bid.price());
                  n[6] += bid.price();
                  return n;
                },
                Materialized.<String, long[], WindowStore<Bytes, byte[]>>with(TEXT, NUMBERS))
            .toStream();
    KStream<long[], Rows.Prices> rows =
        days.map((key, n) -> prices(Long.parseLong(key.key()), key.window().start() / DAY.toMillis(), n));
    topics.put(rows, NUMBERS, Rows.Prices.class);
  }

  private static KeyValue<long[], Rows.Prices> prices(long auction, long day, long[] n) {
    double mean = (double) n[6] / n[0];
    return KeyValue.pair(
        new long[] {auction, day},
        new Rows.Prices(auction, day, n[0], n[1], n[2], n[3], n[4], n[5], mean, n[6]));
  }

  void last() {
    KStream<long[], Rows.ChannelBid> rows =
        topics
            .channelBids()
            .processValues(new Latest())
            .selectKey((key, bid) -> new long[] {bid.auction(), bid.bidder()});
    topics.put(rows, NUMBERS, Rows.ChannelBid.class);
  }

  void best() {
    KStream<String, long[]> lists =
        topics.offers()
            .groupByKey(Grouped.with(TEXT, Rows.json(Rows.Offer.class)))
            .aggregate(() -> new long[0], (key, bid, list) -> better(list, bid), Materialized.with(TEXT, NUMBERS))
            .toStream();
    KStream<long[], Rows.Best> rows = lists.flatMap((key, list) -> ranked(Long.parseLong(key), list));
    topics.put(rows, NUMBERS, Rows.Best.class);
  }

  /** The list, {price, ts, bidder} of each bid, the best first, with one more; at most ten. */
  private static long[] better(long[] list, Rows.Offer bid) {
    int place = list.length;
    while (place > 0
        && Topics.order(bid.price(), bid.ts(), bid.bidder(), list[place - 3], list[place - 2], list[place - 1]) < 0) {
      place -= OFFER;
    }
    if (place == BEST * OFFER) {
      return list;
    }
    long[] made = new long[Math.min(list.length + OFFER, BEST * OFFER)];
    System.arraycopy(list, 0, made, 0, place);
    made[place] = bid.price();
    made[place + 1] = bid.ts();
    made[place + 2] = bid.bidder();
    System.arraycopy(list, place, made, place + OFFER, made.length - place - OFFER);
    return made;
  }

  private static List<KeyValue<long[], Rows.Best>> ranked(long auction, long[] list) {
    List<KeyValue<long[], Rows.Best>> rows = new ArrayList<>();
    for (int i = 0; i < list.length; i += OFFER) {
      long rank = i / OFFER + 1;
      rows.add(
          KeyValue.pair(new long[] {auction, rank}, new Rows.Best(auction, list[i + 2], list[i], list[i + 1], rank)));
    }
    return rows;
  }

  private KStream<Long, byte[]> byBidder() {
    return topics.offers().map((key, bid) -> KeyValue.pair(bid.bidder(), NOTHING));
  }

  /** The key alone is needed, and the time. */
  private KStream<String, byte[]> unread() {
    return topics.offers().mapValues(bid -> NOTHING);
  }
}
