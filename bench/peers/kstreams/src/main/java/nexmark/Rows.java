package nexmark;

import com.fasterxml.jackson.annotation.JsonProperty;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.ObjectReader;
import com.fasterxml.jackson.databind.ObjectWriter;
import com.fasterxml.jackson.databind.PropertyNamingStrategies;
import com.fasterxml.jackson.databind.json.JsonMapper;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;

/**
 * What NexMark's queries read and write, and how it becomes bytes: JSON in the topics of the benchmark, numbers in binary
 * in stores and in the app's own topics.
 *
 * <p>A record that is read has the fields that its queries need; the parser skips the others.
 */
final class Rows {
  public record Offer(long auction, long bidder, long price, long ts) {}

  public record ChannelBid(long auction, long bidder, long price, String channel, long ts) {}

  public record Bid(long auction, long bidder, long price, String channel, String url, long ts) {}

  public record Lot(
      long id, String item, long initialBid, long reserve, long ts, long expires, long seller, long category) {}

  public record Sold(long id, long seller, long category, long ts) {}

  public record Person(long id, String name, String city, String state, long ts) {}

  public record Newcomer(long id, String name, long ts) {}

  public record Price(long auction, long price) {}

  public record Seller(String name, String city, String state, long id) {}

  public record Sale(
      long auction, String item, long seller, long category, long bidder, long price, long ts) {}

  public record Mean(long category, @JsonProperty("final") double mean) {}

  public record Hot(long windowStart, long auction, long bids) {}

  public record Highest(long windowStart, long auction, long bidder, long price, long ts) {}

  public record Registered(long id, String name, long windowStart) {}

  public record Session(long bidder, long windowStart, long windowEnd, long bids) {}

  public record Count(long bidder, long windowStart, long bids) {}

  public record Side(String value) {}

  public record Beside(long auction, long bidder, long price, String value) {}

  public record Dear(long auction, long bidder, long price, String partOfDay, long cCounts) {}

  public record Day(
      long day, long totalBids, long rank1Bids, long rank2Bids, long rank3Bids, long bidders, long auctions) {}

  public record Channel(
      String channel, long day, long totalBids, long rank1Bids, long rank2Bids, long rank3Bids, long bidders,
      long auctions) {}

  public record Prices(
      long auction, long day, long totalBids, long rank1Bids, long rank2Bids, long rank3Bids, long minPrice,
      long maxPrice, double avgPrice, long sumPrice) {}

  public record Best(long auction, long bidder, long price, long ts, long rank) {}

  public record Known(
      long auction, long bidder, long price, String channel, long ts, String item, long seller, long initialBid,
      long reserve) {}

  public record Folders(long auction, long bidder, long price, String channel, String dir1, String dir2) {}

  private static final ObjectMapper MAPPER =
      JsonMapper.builder()
          .propertyNamingStrategy(PropertyNamingStrategies.SNAKE_CASE)
          .disable(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES)
          .build();

  /** Some numbers, eight bytes each. */
  static final Serde<long[]> LONGS = Serdes.serdeFrom((topic, row) -> bytes(row), (topic, bytes) -> longs(bytes));

  static final Serde<ChannelBid> CHANNEL_BID =
      Serdes.serdeFrom((topic, row) -> bytes(row), (topic, bytes) -> channelBid(bytes));

  static <T> Serde<T> json(Class<T> type) {
    ObjectReader reader = MAPPER.readerFor(type);
    ObjectWriter writer = MAPPER.writerFor(type);
    return Serdes.serdeFrom((topic, row) -> write(writer, row), (topic, bytes) -> read(reader, bytes));
  }

  private static byte[] write(ObjectWriter writer, Object row) {
    try {
      return row == null ? null : writer.writeValueAsBytes(row);
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  private static <T> T read(ObjectReader reader, byte[] bytes) {
    try {
      return bytes == null ? null : reader.readValue(bytes);
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  private static byte[] bytes(long[] row) {
    if (row == null) {
      return null;
    }
    ByteBuffer bytes = ByteBuffer.allocate(row.length * Long.BYTES);
    bytes.asLongBuffer().put(row);
    return bytes.array();
  }

  private static long[] longs(byte[] bytes) {
    if (bytes == null) {
      return null;
    }
    long[] row = new long[bytes.length / Long.BYTES];
    ByteBuffer.wrap(bytes).asLongBuffer().get(row);
    return row;
  }

  private static byte[] bytes(ChannelBid row) {
    if (row == null) {
      return null;
    }
    byte[] channel = row.channel().getBytes(StandardCharsets.UTF_8);
    ByteBuffer bytes = ByteBuffer.allocate(4 * Long.BYTES + channel.length);
    bytes.putLong(row.auction()).putLong(row.bidder()).putLong(row.price()).putLong(row.ts()).put(channel);
    return bytes.array();
  }

  private static ChannelBid channelBid(byte[] bytes) {
    if (bytes == null) {
      return null;
    }
    ByteBuffer row = ByteBuffer.wrap(bytes);
    long auction = row.getLong();
    long bidder = row.getLong();
    long price = row.getLong();
    long ts = row.getLong();
    String channel = new String(bytes, row.position(), row.remaining(), StandardCharsets.UTF_8);
    return new ChannelBid(auction, bidder, price, channel, ts);
  }

  private Rows() {}
}
