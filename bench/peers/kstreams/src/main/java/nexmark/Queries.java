package nexmark;

import static nexmark.Topics.TEXT;

import java.util.Set;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.KStream;

/** NexMark's queries: those without state here, and what the others are called. */
final class Queries {
  private final Topics topics;
  private final Joins joins;
  private final Groups groups;

  Queries(StreamsBuilder builder, String target) {
    topics = new Topics(builder, target);
    joins = new Joins(topics);
    groups = new Groups(topics);
  }

  /** Adds a query; returns the topics that it reads. */
  Set<String> build(int number) {
    switch (number) {
      case 0 -> topics.put(topics.offers(), TEXT, Rows.Offer.class);
      case 1 -> topics.put(topics.offers().mapValues(Queries::converted), TEXT, Rows.Offer.class);
      case 2 -> topics.put(some(), TEXT, Rows.Price.class);
      case 3 -> joins.sellers();
      case 4 -> joins.means();
      case 5 -> groups.hot();
      case 7 -> groups.highest();
      case 8 -> joins.registered();
      case 9 -> topics.put(joins.winning().toStream(), TEXT, Rows.Sale.class);
      case 11 -> groups.sessions();
      case 12 -> groups.counts();
      case 13 -> joins.lookedUp();
      case 14 -> topics.put(dear(), TEXT, Rows.Dear.class);
      case 15 -> groups.days();
      case 16 -> groups.channels();
      case 17 -> groups.prices();
      case 18 -> groups.last();
      case 19 -> groups.best();
      case 20 -> joins.known();
      case 22 -> topics.put(topics.bids().mapValues(Queries::folders), TEXT, Rows.Folders.class);
      default -> throw new IllegalArgumentException("there is no query " + number);
    }
    return topics.sources();
  }

  private static Rows.Offer converted(Rows.Offer bid) {
    return new Rows.Offer(bid.auction(), bid.bidder(), bid.price() * 908 / 1000, bid.ts());
  }

  private KStream<String, Rows.Price> some() {
    return topics.offers()
        .filter((key, bid) -> bid.auction() % 123 == 0)
        .mapValues(bid -> new Rows.Price(bid.auction(), bid.price()));
  }

  private KStream<String, Rows.Dear> dear() {
    return topics.bids()
        .filter((key, bid) -> bid.price() * 908 / 1000 > 1_000_000 && bid.price() * 908 / 1000 < 50_000_000)
        .mapValues(
            bid ->
                new Rows.Dear(
                    bid.auction(), bid.bidder(), bid.price() * 908 / 1000, part(bid.ts() / 3_600_000 % 24),
                    bid.url().chars().filter(letter -> letter == 'c').count()));
  }

  private static String part(long hour) {
    if (hour >= 8 && hour <= 18) {
      return "day";
    }
    return hour <= 6 || hour >= 20 ? "night" : "other";
  }

  private static Rows.Folders folders(Rows.Bid bid) {
    String[] parts = bid.url().split("/", 6);
    return new Rows.Folders(
        bid.auction(), bid.bidder(), bid.price(), bid.channel(), parts.length > 3 ? parts[3] : "",
        parts.length > 4 ? parts[4] : "");
  }
}
