import java.util.Arrays;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;

/**
 * What load generators in Java share: options, pacing, percentiles.  The rules are those of benchmarks/loads/open_loop.py: open
 * loop, event k is due at start + k / rate, and its latency counts from then.
 */
final class OpenLoop {
    static final int EVENT_BYTES = 100;
    static final long TICK_NANOS = 250_000;
    static final int MOST_IN_FLIGHT = 400_000;

    /** Sends one event; calls `acked` once it is durable. */
    interface Sender {
        void send(byte[] event, Runnable acked);
    }

    static Map<String, String> options(String[] arguments) {
        Map<String, String> found = new TreeMap<>();
        for (String argument : arguments) {
            int at = argument.indexOf('=');
            found.put(argument.substring(0, at), argument.substring(at + 1));
        }
        return found;
    }

    static byte[] eventAt(long nanos) {
        byte[] event = new byte[EVENT_BYTES];
        for (int n = 0; n < 8; n++) {
            event[n] = (byte) (nanos >>> (8 * n));
        }
        return event;
    }

    static long dueOf(byte[] event) {
        long nanos = 0;
        for (int n = 7; n >= 0; n--) {
            nanos = nanos << 8 | (event[n] & 0xff);
        }
        return nanos;
    }

    /** Writes `rate` events a second (0: as fast as it goes) for `seconds`; the first `warm` seconds do not count. */
    static void write(Sender sender, Runnable flush, double rate, double seconds, double warm) throws Exception {
        if (rate > 0) {
            openLoop(sender, flush, rate, seconds, warm);
        } else {
            unthrottled(sender, flush, warm);
            long start = System.nanoTime();
            long sent = unthrottled(sender, flush, seconds);
            rate(sent, System.nanoTime() - start);
        }
        System.out.flush();
    }

    private static long unthrottled(Sender sender, Runnable flush, double seconds) throws Exception {
        Semaphore slots = new Semaphore(MOST_IN_FLIGHT);
        byte[] event = eventAt(0);
        long end = System.nanoTime() + (long) (seconds * 1e9);
        long sent = 0;
        while (System.nanoTime() < end) {
            slots.acquire(100);
            for (int n = 0; n < 100; n++) {
                sender.send(event, slots::release);
            }
            sent += 100;
        }
        flush.run();
        slots.acquire(MOST_IN_FLIGHT);
        return sent;
    }

    private static void openLoop(Sender sender, Runnable flush, double rate, double seconds, double warm)
            throws Exception {
        int total = (int) (rate * (seconds + warm));
        long[] latency = new long[total];
        CountDownLatch done = new CountDownLatch(total);
        long start = System.nanoTime() + 50_000_000;
        int sent = 0;
        while (sent < total) {
            int end = (int) Math.min((System.nanoTime() - start) / 1e9 * rate, total);
            for (; sent < end; sent++) {
                int number = sent;
                long due = start + (long) (number / rate * 1e9);
                sender.send(eventAt(due), () -> {
                    latency[number] = System.nanoTime() - due;
                    done.countDown();
                });
            }
            LockSupport.parkNanos(TICK_NANOS);
        }
        flush.run();
        done.await();
        percentiles(Arrays.copyOfRange(latency, (int) (rate * warm), total), rate);
    }

    static void rate(long events, long nanos) {
        System.out.printf(Locale.ROOT, "{\"events\": %d, \"seconds\": %.2f, \"events_per_s\": %.0f}%n", events,
                nanos / 1e9, events * 1e9 / nanos);
    }

    static void percentiles(long[] nanos, double rate) {
        Arrays.sort(nanos);
        int count = nanos.length;
        System.out.printf(Locale.ROOT,
                "{\"events\": %d, \"events_per_s\": %.0f, \"p50_ms\": %.3f, \"p95_ms\": %.3f, \"p99_ms\": %.3f,"
                        + " \"max_ms\": %.1f}%n",
                count, rate, nanos[count / 2] / 1e6, nanos[(int) (count * 0.95)] / 1e6,
                nanos[(int) (count * 0.99)] / 1e6, nanos[count - 1] / 1e6);
    }

    private OpenLoop() { }
}
