package nexmark;

import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;

/**
 * A query of NexMark in Kafka Streams, exactly-once, one thread: BROKERS QUERY TARGET COMMIT_MS FOLDER.
 *
 * <p>It ends when all that was in the topics at the start is processed and committed, and all that came of it in the app's
 * own topics.
 */
public final class NexMark {
  private static final long CACHE_BYTES = 64 << 20;
  private static final long POLL_MS = 100;

  public static void main(String[] arguments) throws Exception {
    String target = arguments[2];
    String app = target + "-" + UUID.randomUUID();
    Properties settings = new Properties();
    settings.put(StreamsConfig.APPLICATION_ID_CONFIG, app);
    settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
    settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
    settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 1);
    settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, arguments[3]);
    settings.put(StreamsConfig.STATE_DIR_CONFIG, arguments[4]);
    settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, CACHE_BYTES);
    settings.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);
    settings.put(StreamsConfig.TOPOLOGY_OPTIMIZATION_CONFIG, StreamsConfig.OPTIMIZE);
    settings.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");
    settings.put(ProducerConfig.COMPRESSION_TYPE_CONFIG, "lz4");
    settings.put(ProducerConfig.BATCH_SIZE_CONFIG, 128 << 10);

    StreamsBuilder builder = new StreamsBuilder();
    Set<String> sources = new Queries(builder, target).build(Integer.parseInt(arguments[1]));
    boolean done;
    try (Admin admin = Admin.create(Map.of(AdminClientConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]));
        KafkaStreams streams = new KafkaStreams(builder.build(settings), settings)) {
      streams.setUncaughtExceptionHandler(
          error -> {
            error.printStackTrace();
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
          });
      Map<TopicPartition, Long> ends = ends(admin, sources);
      streams.start();
      done = finished(streams, admin, app, ends) && streams.close(Duration.ofSeconds(30));
    }
    System.exit(done ? 0 : 1);
  }

  /** Waits until all is processed; false if the app failed. */
  private static boolean finished(KafkaStreams streams, Admin admin, String app, Map<TopicPartition, Long> ends)
      throws InterruptedException, ExecutionException {
    while (streams.state() != KafkaStreams.State.PENDING_ERROR && streams.state() != KafkaStreams.State.ERROR) {
      Thread.sleep(POLL_MS);
      // First what is committed, then the ends: so the ends have all that was written before the commit.
      Map<TopicPartition, OffsetAndMetadata> committed =
          admin.listConsumerGroupOffsets(app).partitionsToOffsetAndMetadata().get();
      if (reached(committed, ends) && reached(committed, ends(admin, own(admin, app)))) {
        return true;
      }
    }
    return false;
  }

  private static boolean reached(Map<TopicPartition, OffsetAndMetadata> committed, Map<TopicPartition, Long> ends) {
    return ends.entrySet().stream()
        .allMatch(
            end -> {
              OffsetAndMetadata at = committed.get(end.getKey());
              return (at == null ? 0 : at.offset()) >= end.getValue();
            });
  }

  /** The app's own topics that it also reads. */
  private static Set<String> own(Admin admin, String app) throws InterruptedException, ExecutionException {
    Set<String> topics = new HashSet<>(admin.listTopics().names().get());
    topics.removeIf(topic -> !topic.startsWith(app) || topic.endsWith("-changelog"));
    return topics;
  }

  private static Map<TopicPartition, Long> ends(Admin admin, Collection<String> topics)
      throws InterruptedException, ExecutionException {
    Map<TopicPartition, OffsetSpec> asked = new HashMap<>();
    for (TopicDescription topic : admin.describeTopics(topics).allTopicNames().get().values()) {
      topic.partitions().forEach(p -> asked.put(new TopicPartition(topic.name(), p.partition()), OffsetSpec.latest()));
    }
    return admin.listOffsets(asked).all().get().entrySet().stream()
        .collect(Collectors.toMap(Map.Entry::getKey, end -> end.getValue().offset()));
  }
}
