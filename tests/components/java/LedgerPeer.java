import java.util.Arrays;
import java.util.Base64;
import java.util.Collections;
import java.util.Enumeration;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.LedgerEntry;
import org.apache.bookkeeper.client.LedgerHandle;
import org.apache.bookkeeper.conf.ClientConfiguration;

/**
 * BookKeeper's own client beside ours.
 *
 * write URI DIGEST PASSWORD COUNT BYTES close|open: a new ledger; prints "ledger ID"
 * read URI DIGEST PASSWORD LEDGER recover|plain: prints "last ID length BYTES", and "entry ID BASE64" for each
 */
public class LedgerPeer {
    public static void main(String[] arguments) throws Exception {
        ClientConfiguration configuration = new ClientConfiguration();
        configuration.setMetadataServiceUri(arguments[1]);
        BookKeeper.DigestType digest = BookKeeper.DigestType.valueOf(arguments[2]);
        byte[] password = arguments[3].getBytes("UTF-8");
        try (BookKeeper client = new BookKeeper(configuration)) {
            if (arguments[0].equals("write")) {
                int count = Integer.parseInt(arguments[4]);
                byte[] payload = new byte[Integer.parseInt(arguments[5])];
                LedgerHandle ledger = client.createLedger(
                    3, 3, 2, digest, password, Collections.singletonMap("application", "java".getBytes("UTF-8")));
                for (int entry = 0; entry < count; entry++) {
                    Arrays.fill(payload, (byte) entry);
                    ledger.addEntry(payload);
                }
                System.out.println("ledger " + ledger.getId());
                if (arguments[6].equals("close")) {
                    ledger.close();
                } else {
                    System.out.flush();
                    Runtime.getRuntime().halt(0);
                }
                return;
            }
            long id = Long.parseLong(arguments[4]);
            LedgerHandle ledger = arguments[5].equals("recover")
                ? client.openLedger(id, digest, password) : client.openLedgerNoRecovery(id, digest, password);
            long last = ledger.getLastAddConfirmed();
            System.out.println("last " + last + " length " + ledger.getLength());
            if (last >= 0) {
                Enumeration<LedgerEntry> entries = ledger.readEntries(0, last);
                while (entries.hasMoreElements()) {
                    LedgerEntry entry = entries.nextElement();
                    String text = Base64.getEncoder().encodeToString(entry.getEntry());
                    System.out.println("entry " + entry.getEntryId() + " " + text);
                }
            }
            ledger.close();
        }
    }
}
