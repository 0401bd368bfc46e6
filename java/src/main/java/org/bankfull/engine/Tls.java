package org.bankfull.engine;

import java.io.IOException;
import java.net.Socket;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.security.cert.CertificateException;
import java.security.cert.X509Certificate;
import java.util.Collections;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLException;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocket;
import javax.net.ssl.TrustManager;
import javax.net.ssl.X509ExtendedTrustManager;
import org.bankfull.BankfullException;
import org.bankfull.wire.Failure;

/** TLS client that accepts the pinned certificate only (spec/wire.md, section 2). */
final class Tls {
    private static final String[] PROTOCOLS = {"TLSv1.3"};
    private static final String[] SUITES = {"TLS_AES_128_GCM_SHA256"};
    private static final String PREFIX = "sha256:";
    private static final int DIGITS = 64;

    private final SSLContext context;
    private final boolean hasFingerprint;

    /** Creates a client of the daemon {@code peer}; without a fingerprint, handshakes fail. */
    Tls(String peer, String fingerprint) throws BankfullException {
        hasFingerprint = fingerprint != null;
        PinnedTrustManager trustManager =
            new PinnedTrustManager(peer, fingerprint == null ? null : parse(fingerprint));
        try {
            context = SSLContext.getInstance("TLSv1.3");
            context.init(null, new TrustManager[] {trustManager}, null);
        } catch (GeneralSecurityException e) {
            throw new BankfullException(Failure.OTHER,
                "this Java has no TLS 1.3: " + e.getMessage() + ": use Java 11 or later", e);
        }
    }

    /** True if the daemon's fingerprint is known. */
    boolean hasFingerprint() {
        return hasFingerprint;
    }

    private static byte[] parse(String fingerprint) throws BankfullException {
        String digits = fingerprint.startsWith(PREFIX)
            ? fingerprint.substring(PREFIX.length())
            : "";
        if (digits.length() != DIGITS || !digits.matches("[0-9a-f]+")) {
            throw new BankfullException(Failure.USAGE, "\"" + fingerprint
                + "\" is not a fingerprint: write " + PREFIX + " followed by " + DIGITS
                + " hexadecimal digits, as printed by the daemon at its start",
                BankfullException.Setting.FINGERPRINT, null);
        }
        byte[] bytes = new byte[DIGITS / 2];
        for (int i = 0; i < bytes.length; i++) {
            bytes[i] = (byte) Integer.parseInt(digits.substring(2 * i, 2 * i + 2), 16);
        }
        return bytes;
    }

    private static String format(byte[] fingerprint) {
        StringBuilder text = new StringBuilder(PREFIX);
        for (byte each : fingerprint) {
            text.append(String.format("%02x", each));
        }
        return text.toString();
    }

    /** Performs the handshake over a connected socket; the result closes it, too. */
    SSLSocket handshake(Socket raw, String host, int port) throws IOException {
        SSLSocket socket =
            (SSLSocket) context.getSocketFactory().createSocket(raw, host, port, true);
        socket.setEnabledProtocols(PROTOCOLS);
        socket.setEnabledCipherSuites(SUITES);
        SSLParameters parameters = socket.getSSLParameters();
        // The certificate is pinned: no server name is sent.
        parameters.setServerNames(Collections.emptyList());
        socket.setSSLParameters(parameters);
        try {
            socket.startHandshake();
        } catch (SSLException e) {
            for (Throwable cause = e; cause != null; cause = cause.getCause()) {
                if (cause instanceof PinnedTrustManager.FingerprintMismatch) {
                    throw new BankfullException(Failure.OTHER, cause.getMessage(),
                        BankfullException.Setting.FINGERPRINT, e);
                }
            }
            throw e;
        }
        return socket;
    }

    /** Checks the fingerprint only; names, dates and chains are ignored. */
    private static final class PinnedTrustManager extends X509ExtendedTrustManager {
        private final String peer;
        /** Expected fingerprint; null if unknown. */
        private final byte[] expected;

        PinnedTrustManager(String peer, byte[] expected) {
            this.peer = peer;
            this.expected = expected;
        }

        private static final class FingerprintMismatch extends CertificateException {
            private static final long serialVersionUID = 1;

            FingerprintMismatch(String message) {
                super(message);
            }
        }

        private void check(X509Certificate[] chain) throws CertificateException {
            byte[] found;
            try {
                found = MessageDigest.getInstance("SHA-256").digest(chain[0].getEncoded());
            } catch (GeneralSecurityException e) {
                throw new CertificateException(e);
            }
            if (expected == null) {
                throw new FingerprintMismatch(
                    peer + " is not known yet; its fingerprint is " + format(found)
                    + ": compare it with the fingerprint printed by the daemon, then pass it");
            }
            if (!MessageDigest.isEqual(found, expected)) {
                throw new FingerprintMismatch(peer + " presents the fingerprint " + format(found)
                    + ", not the expected " + format(expected)
                    + ": check the address and the fingerprint printed by the daemon");
            }
        }

        @Override
        public void checkServerTrusted(X509Certificate[] chain, String type, Socket socket)
            throws CertificateException {
            check(chain);
        }

        @Override
        public void checkServerTrusted(X509Certificate[] chain, String type, SSLEngine engine)
            throws CertificateException {
            check(chain);
        }

        @Override
        public void checkServerTrusted(X509Certificate[] chain, String type)
            throws CertificateException {
            check(chain);
        }

        @Override
        public void checkClientTrusted(X509Certificate[] chain, String type, Socket socket)
            throws CertificateException {
            throw new CertificateException("clients have no certificate");
        }

        @Override
        public void checkClientTrusted(X509Certificate[] chain, String type, SSLEngine engine)
            throws CertificateException {
            throw new CertificateException("clients have no certificate");
        }

        @Override
        public void checkClientTrusted(X509Certificate[] chain, String type)
            throws CertificateException {
            throw new CertificateException("clients have no certificate");
        }

        @Override
        public X509Certificate[] getAcceptedIssuers() {
            return new X509Certificate[0];
        }
    }
}
