package nexmark;

import java.time.Duration;
import java.util.HashSet;
import java.util.Set;
import java.util.function.ToLongFunction;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.GlobalKTable;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Produced;

/** The topics of a query. All are keyed by text: bids and auctions by the auction's number, people by theirs. */
final class Topics {
  static final Serde<String> TEXT = Serdes.String();
  static final Serde<Long> NUMBER = Serdes.Long();
  static final Serde<byte[]> RAW = Serdes.ByteArray();
  static final Serde<long[]> NUMBERS = Rows.LONGS;
  static final Duration WINDOW = Duration.ofSeconds(10);

  /** Partitions of a topic are not read at one pace, so windows stay open for a while. */
  static final Duration GRACE = Duration.ofMinutes(1);

  private final StreamsBuilder builder;
  private final String target;
  private final Set<String> sources = new HashSet<>();

  Topics(StreamsBuilder builder, String target) {
    this.builder = builder;
    this.target = target;
  }

  /** What was asked for so far. */
  Set<String> sources() {
    return sources;
  }

  static long start(long ts) {
    return ts - ts % WINDOW.toMillis();
  }

  /** Below zero if the first of two bids is the better: dearer, or earlier, or of the lesser bidder. */
  static int order(long price, long ts, long bidder, long price2, long ts2, long bidder2) {
    if (price != price2) {
      return Long.compare(price2, price);
    }
    return ts != ts2 ? Long.compare(ts, ts2) : Long.compare(bidder, bidder2);
  }

  KStream<String, Rows.Offer> offers() {
    return stream("bid", Rows.Offer.class, Rows.Offer::ts);
  }

  KStream<String, Rows.ChannelBid> channelBids() {
    return stream("bid", Rows.ChannelBid.class, Rows.ChannelBid::ts);
  }

  KStream<String, Rows.Bid> bids() {
    return stream("bid", Rows.Bid.class, Rows.Bid::ts);
  }

  KStream<String, Rows.Lot> lots() {
    return stream("auction", Rows.Lot.class, Rows.Lot::ts);
  }

  /** Not one of the sources: it is read apart from them, and first. */
  GlobalKTable<String, Rows.Side> sides() {
    return builder.globalTable("side_input", Consumed.with(TEXT, Rows.json(Rows.Side.class)));
  }

  <T> KStream<String, T> stream(String topic, Class<T> type, ToLongFunction<T> time) {
    sources.add(topic);
    Consumed<String, T> how = Consumed.with(TEXT, Rows.json(type));
    @SuppressWarnings("unchecked")
    Consumed<String, T> timed =
        how.withTimestampExtractor((record, before) -> time.applyAsLong((T) record.value()));
    return builder.stream(topic, timed);
  }

  <K, R> void put(KStream<K, R> rows, Serde<K> keys, Class<R> type) {
    rows.to(target, Produced.with(keys, Rows.json(type)));
  }
}
