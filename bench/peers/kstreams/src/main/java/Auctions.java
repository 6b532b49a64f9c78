import com.fasterxml.jackson.annotation.JsonIgnoreProperties;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.ObjectReader;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.Properties;
import java.util.UUID;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.KeyValueStore;

/** The job in Kafka Streams, exactly-once, one thread: BROKERS SOURCE TARGET COUNT COMMIT_MS FOLDER CACHE_BYTES. */
public final class Auctions {
  private static final ObjectReader BIDS = new ObjectMapper().readerFor(Bid.class);

  @JsonIgnoreProperties(ignoreUnknown = true)
  public record Bid(long auction, long price) {}

  public static void main(String[] arguments) throws InterruptedException {
    String target = arguments[2];
    long count = Long.parseLong(arguments[3]);
    Properties settings = new Properties();
    settings.put(StreamsConfig.APPLICATION_ID_CONFIG, target + "-" + UUID.randomUUID());
    settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
    settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
    settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 1);
    settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, arguments[4]);
    settings.put(StreamsConfig.STATE_DIR_CONFIG, arguments[5]);
    settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, arguments[6]);
    settings.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);
    settings.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");

    AtomicLong seen = new AtomicLong();
    CountDownLatch done = new CountDownLatch(1);
    StreamsBuilder builder = new StreamsBuilder();
    builder
        .stream(arguments[1], Consumed.with(Serdes.ByteArray(), Serdes.ByteArray()))
        .groupByKey(Grouped.with(Serdes.ByteArray(), Serdes.ByteArray()))
        .aggregate(
            () -> stats(0, 0),
            (key, value, before) -> {
              if (seen.incrementAndGet() == count) {
                done.countDown();
              }
              ByteBuffer stats = ByteBuffer.wrap(before);
              return stats(stats.getLong(0) + 1, Math.max(stats.getLong(8), bid(value).price()));
            },
            Materialized.<byte[], byte[], KeyValueStore<Bytes, byte[]>>as("stats")
                .withKeySerde(Serdes.ByteArray())
                .withValueSerde(Serdes.ByteArray()))
        .toStream()
        .mapValues((key, value) -> json(key, ByteBuffer.wrap(value)))
        .to(target, Produced.with(Serdes.ByteArray(), Serdes.String()));

    KafkaStreams streams = new KafkaStreams(builder.build(), settings);
    streams.start();
    done.await();
    if (!streams.close(Duration.ofSeconds(30))) { // commits what is open
      System.exit(1);
    }
  }

  private static byte[] stats(long n, long top) {
    return ByteBuffer.allocate(16).putLong(n).putLong(top).array();
  }

  private static Bid bid(byte[] value) {
    try {
      return BIDS.readValue(value);
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  private static String json(byte[] key, ByteBuffer stats) {
    return "{\"auction\":" + new String(key) + ",\"n\":" + stats.getLong(0) + ",\"top\":" + stats.getLong(8) + "}";
  }
}
