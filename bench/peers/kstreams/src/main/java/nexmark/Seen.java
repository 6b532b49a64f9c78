package nexmark;

import java.time.Duration;
import java.util.Set;
import java.util.function.ToLongFunction;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.processor.api.ContextualFixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorContext;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorSupplier;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.WindowStore;

/** Processors that know what was in a window before: the DSL has no distinct, and would send each bid through a topic. */
final class Seen {
  private static final String STORE = "seen";

  /** Lets a key through once in each window. */
  static FixedKeyProcessorSupplier<String, long[], long[]> once(Duration window, Duration grace) {
    return supplier(
        window,
        grace,
        () ->
            new InWindow<long[], long[]>(window) {
              @Override
              public void process(FixedKeyRecord<String, long[]> record) {
                if (first(record.key(), record.timestamp())) {
                  context().forward(record);
                }
              }
            });
  }

  /** Of {auction, bidder, price} makes {price, 1 if the bidder is new in the window, 1 if the auction is}. */
  static FixedKeyProcessorSupplier<String, long[], long[]> marked(Duration window, Duration grace) {
    return supplier(
        window,
        grace,
        () ->
            new InWindow<long[], long[]>(window) {
              @Override
              public void process(FixedKeyRecord<String, long[]> record) {
                long[] bid = record.value();
                boolean auction = first(record.key() + "a" + bid[0], record.timestamp());
                boolean bidder = first(record.key() + "b" + bid[1], record.timestamp());
                context().forward(record.withValue(new long[] {bid[2], bidder ? 1 : 0, auction ? 1 : 0}));
              }
            });
  }

  /** Lets through what is no less than anything before it in the window. */
  static <V> FixedKeyProcessorSupplier<String, V, V> highest(Duration window, Duration grace, ToLongFunction<V> value) {
    return supplier(
        window,
        grace,
        () ->
            new InWindow<V, V>(window) {
              @Override
              public void process(FixedKeyRecord<String, V> record) {
                long now = value.applyAsLong(record.value());
                Long before = before("", record.timestamp());
                if (before == null || now >= before) {
                  put("", now, record.timestamp());
                  context().forward(record);
                }
              }
            });
  }

  private abstract static class InWindow<V, R> extends ContextualFixedKeyProcessor<String, V, R> {
    private final long window;
    private WindowStore<String, Long> store;

    InWindow(Duration window) {
      this.window = window.toMillis();
    }

    @Override
    public void init(FixedKeyProcessorContext<String, R> context) {
      super.init(context);
      store = context.getStateStore(STORE);
    }

    Long before(String key, long ts) {
      return store.fetch(key, ts - ts % window);
    }

    void put(String key, long value, long ts) {
      store.put(key, value, ts - ts % window);
    }

    boolean first(String key, long ts) {
      if (before(key, ts) != null) {
        return false;
      }
      put(key, 1, ts);
      return true;
    }
  }

  private static <V, R> FixedKeyProcessorSupplier<String, V, R> supplier(
      Duration window, Duration grace, FixedKeyProcessorSupplier<String, V, R> made) {
    StoreBuilder<WindowStore<String, Long>> store =
        Stores.windowStoreBuilder(
                Stores.persistentWindowStore(STORE, window.plus(grace), window, false), Serdes.String(), Serdes.Long())
            .withCachingEnabled();
    return new FixedKeyProcessorSupplier<>() {
      @Override
      public FixedKeyProcessor<String, V, R> get() {
        return made.get();
      }

      @Override
      public Set<StoreBuilder<?>> stores() {
        return Set.of(store);
      }
    };
  }

  private Seen() {}
}
