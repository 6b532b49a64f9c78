package nexmark;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.kafka.streams.KeyValue;

/**
 * All rows that have the highest value of a window. As numbers: how many there were at most, the highest value, and the
 * rows, each of as many numbers.
 */
final class Leaders {
  private static final int HEAD = 2;

  static long[] none() {
    return new long[] {0, Long.MIN_VALUE};
  }

  static long[] with(long[] before, long value, long... row) {
    if (value < before[1]) {
      return before;
    }
    int kept = value == before[1] ? before.length : HEAD;
    long[] after = Arrays.copyOf(before, kept + row.length);
    System.arraycopy(row, 0, after, kept, row.length);
    after[0] = Math.max(before[0], (after.length - HEAD) / row.length);
    after[1] = value;
    return after;
  }

  /** Each row and its value, by window and place; a place that a row once had and none has now is deleted. */
  static List<KeyValue<long[], long[]>> rows(long window, long[] leaders, int width) {
    List<KeyValue<long[], long[]>> rows = new ArrayList<>();
    for (int place = 0; place < leaders[0]; place++) {
      int begin = HEAD + place * width;
      long[] row = begin < leaders.length ? Arrays.copyOfRange(leaders, begin, begin + width + 1) : null;
      if (row != null) {
        row[width] = leaders[1];
      }
      rows.add(KeyValue.pair(new long[] {window, place}, row));
    }
    return rows;
  }

  private Leaders() {}
}
