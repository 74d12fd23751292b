package org.apache.spark.shuffle.holdfast;

import java.io.IOException;
import java.nio.file.AccessDeniedException;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.InvalidPathException;
import org.apache.spark.shuffle.holdfast.secure.CredentialsProvider;

/**
 * The two files on the driver that say how it is known to the masters and they to it; both or neither.
 *
 * <p>Rules: executors have the settings and never read them: the driver gives them what they need. Read anew for each application, since
 * tokens in files are replaced. What is wrong is an IllegalArgumentException that names the key, never what is in the file.
 *
 * @param ca path of the CA's certificates in PEM, empty without security
 * @param token path of the file with the token of a user
 */
record SecurityFiles(String ca, String token) {
    static final String CA = "security.ca";
    static final String TOKEN = "security.tokenFile";

    SecurityFiles {
        if (CredentialsProvider.isToken(token)) { // settings are seen by many
            throw new IllegalArgumentException(HoldfastConf.PREFIX + TOKEN + " is the path of a file with a token, and holds a token itself:"
                    + " put it into a file that only you can read");
        }
        if (ca.isEmpty() != token.isEmpty()) {
            String missing = ca.isEmpty() ? CA : TOKEN;
            throw new IllegalArgumentException(HoldfastConf.PREFIX + missing + " is not set: " + HoldfastConf.PREFIX + CA + " and "
                    + HoldfastConf.PREFIX + TOKEN + " go together; give both, or neither where the cluster has no security");
        }
    }

    boolean given() {
        return !ca.isEmpty();
    }

    /** What the driver shows where it registers an application; nothing without security. */
    CredentialsProvider read() {
        if (!given()) {
            return new CredentialsProvider();
        }
        String certificates = text(CA, ca);
        String credentials = text(TOKEN, token).trim();
        try {
            return new CredentialsProvider(certificates, credentials);
        } catch (CredentialsProvider.NoTokenException wrong) {
            throw wrong(TOKEN, token, wrong.getMessage());
        } catch (IllegalArgumentException wrong) {
            throw wrong(CA, ca, wrong.getMessage());
        }
    }

    private static String text(String key, String path) {
        try {
            return Files.readString(Path.of(path));
        } catch (IOException error) {
            throw wrong(key, path, reason(error, System.getProperty("user.name")));
        } catch (InvalidPathException error) {
            throw wrong(key, path, "it cannot be read: " + error.getMessage());
        }
    }

    /** Why a file cannot be read, without its path: such exceptions have it for a message, and often nothing else. */
    static String reason(IOException error, String user) {
        if (error instanceof NoSuchFileException) {
            return "there is no such file";
        }
        if (error instanceof AccessDeniedException) {
            return "permission denied: the user " + user + " may not read it, or not look into its directory";
        }
        String reason = error instanceof FileSystemException file ? file.getReason() : error.getMessage();
        return "it cannot be read" + (reason == null ? "" : ": " + reason);
    }

    private static IllegalArgumentException wrong(String key, String path, String reason) {
        return new IllegalArgumentException(HoldfastConf.PREFIX + key + " " + path + ": " + reason);
    }
}
