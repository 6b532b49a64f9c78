package nexmark;

import java.util.Set;
import org.apache.kafka.streams.processor.api.ContextualFixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorContext;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorSupplier;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;

/**
 * Lets through a bid that is the last so far of its auction and bidder.
 *
 * <p>All bids on an auction are in one partition, but the DSL's groupBy would send each of them through a topic.
 */
final class Latest implements FixedKeyProcessorSupplier<String, Rows.ChannelBid, Rows.ChannelBid> {
  private static final String STORE = "last";

  @Override
  public Set<StoreBuilder<?>> stores() {
    return Set.of(
        Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore(STORE), Topics.NUMBERS, Rows.CHANNEL_BID)
            .withCachingEnabled());
  }

  @Override
  public FixedKeyProcessor<String, Rows.ChannelBid, Rows.ChannelBid> get() {
    return new ContextualFixedKeyProcessor<>() {
      private KeyValueStore<long[], Rows.ChannelBid> store;

      @Override
      public void init(FixedKeyProcessorContext<String, Rows.ChannelBid> context) {
        super.init(context);
        store = context.getStateStore(STORE);
      }

      @Override
      public void process(FixedKeyRecord<String, Rows.ChannelBid> record) {
        Rows.ChannelBid bid = record.value();
        long[] key = {bid.auction(), bid.bidder()};
        Rows.ChannelBid last = store.get(key);
        if (last == null || order(bid, last) > 0) {
          store.put(key, bid);
          context().forward(record);
        }
      }
    };
  }

  private static int order(Rows.ChannelBid one, Rows.ChannelBid other) {
    if (one.ts() != other.ts()) {
      return Long.compare(one.ts(), other.ts());
    }
    return one.price() != other.price()
        ? Long.compare(one.price(), other.price())
        : one.channel().compareTo(other.channel());
  }
}
