import java.lang.management.ManagementFactory;
import java.util.Arrays;
import java.util.Random;
import java.util.concurrent.Semaphore;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.LedgerHandle;
import org.apache.bookkeeper.conf.ClientConfiguration;

/**
 * How fast BookKeeper's own client writes: URI BYTES COUNT WINDOW v2|v3.
 *
 * Two ledgers, the first one to warm up.  Prints "measured SECONDS PROCESSOR_SECONDS P50_MS P95_MS" of the second.
 */
public class LedgerLoad {
    public static void main(String[] arguments) throws Exception {
        ClientConfiguration configuration = new ClientConfiguration();
        configuration.setMetadataServiceUri(arguments[0]);
        configuration.setUseV2WireProtocol(arguments[4].equals("v2"));
        configuration.setAddEntryTimeout(60);
        byte[] payload = new byte[Integer.parseInt(arguments[1])];
        new Random(1).nextBytes(payload);
        int count = Integer.parseInt(arguments[2]);
        int window = Integer.parseInt(arguments[3]);
        try (BookKeeper client = new BookKeeper(configuration)) {
            write(client, payload, count, window);
            System.out.println("measured " + write(client, payload, count, window));
        }
    }

    private static String write(BookKeeper client, byte[] payload, int count, int window) throws Exception {
        LedgerHandle ledger = client.createLedger(3, 3, 2, BookKeeper.DigestType.CRC32C, new byte[0]);
        Semaphore slots = new Semaphore(window);
        long[] delays = new long[count];
        com.sun.management.OperatingSystemMXBean system =
            (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        long begun = System.nanoTime();
        long used = system.getProcessCpuTime();
        for (int entry = 0; entry < count; entry++) {
            slots.acquire();
            long sent = System.nanoTime();
            int at = entry;
            ledger.asyncAddEntry(payload, (code, handle, id, context) -> {
                if (code != 0) {
                    System.err.println("an entry was not stored: " + code);
                    Runtime.getRuntime().halt(1);
                }
                delays[at] = System.nanoTime() - sent;
                slots.release();
            }, null);
        }
        slots.acquire(window);
        double seconds = (System.nanoTime() - begun) / 1e9;
        double processor = (system.getProcessCpuTime() - used) / 1e9;
        ledger.close();
        Arrays.sort(delays);
        return seconds + " " + processor + " " + delays[count / 2] / 1e6 + " " + delays[count * 19 / 20] / 1e6;
    }
}
