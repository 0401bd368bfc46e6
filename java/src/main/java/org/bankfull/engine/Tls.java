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

/** TLS to the one daemon whose certificate has the pinned fingerprint (spec/wire.md, section 2). */
final class Tls {
    private static final String[] PROTOCOLS = {"TLSv1.3"};
    private static final String[] SUITES = {"TLS_AES_128_GCM_SHA256"};
    private static final String PREFIX = "sha256:";
    private static final int DIGITS = 64;

    private final SSLContext context;

    /** To the daemon at a place. Without a fingerprint every handshake fails, and tells its own. */
    Tls(String place, String fingerprint) throws BankfullException {
        Pin pin = new Pin(place, fingerprint == null ? null : parse(fingerprint));
        try {
            context = SSLContext.getInstance("TLSv1.3");
            context.init(null, new TrustManager[] {pin}, null);
        } catch (GeneralSecurityException e) {
            throw new BankfullException(Failure.OTHER,
                "this Java has no TLS 1.3: " + e.getMessage() + ": take Java 11 or later", e);
        }
    }

    private static byte[] parse(String fingerprint) throws BankfullException {
        String digits = fingerprint.startsWith(PREFIX)
            ? fingerprint.substring(PREFIX.length())
            : "";
        if (digits.length() != DIGITS || !digits.matches("[0-9a-f]+")) {
            throw new BankfullException(Failure.USAGE, "\"" + fingerprint
                + "\" is not a fingerprint: write " + PREFIX + " and " + DIGITS
                + " hexadecimal digits, as the daemon shows them when it starts",
                BankfullException.Setting.FINGERPRINT, null);
        }
        byte[] bytes = new byte[DIGITS / 2];
        for (int i = 0; i < bytes.length; i++) {
            bytes[i] = (byte) Integer.parseInt(digits.substring(2 * i, 2 * i + 2), 16);
        }
        return bytes;
    }

    private static String shown(byte[] fingerprint) {
        StringBuilder shown = new StringBuilder(PREFIX);
        for (byte each : fingerprint) {
            shown.append(String.format("%02x", each));
        }
        return shown.toString();
    }

    /** Makes the handshake over a connected socket, which is closed with the one returned. */
    SSLSocket over(Socket plain, String host, int port) throws IOException {
        SSLSocket socket =
            (SSLSocket) context.getSocketFactory().createSocket(plain, host, port, true);
        socket.setEnabledProtocols(PROTOCOLS);
        socket.setEnabledCipherSuites(SUITES);
        SSLParameters parameters = socket.getSSLParameters();
        // The certificate is pinned: nobody needs to hear a name.
        parameters.setServerNames(Collections.emptyList());
        socket.setSSLParameters(parameters);
        try {
            socket.startHandshake();
        } catch (SSLException e) {
            for (Throwable cause = e; cause != null; cause = cause.getCause()) {
                if (cause instanceof Pin.Wrong) {
                    throw new BankfullException(Failure.OTHER, cause.getMessage(),
                        BankfullException.Setting.FINGERPRINT, e);
                }
            }
            throw e;
        }
        return socket;
    }

    /** Looks at nothing but the fingerprint: names, dates and chains mean nothing here. */
    private static final class Pin extends X509ExtendedTrustManager {
        private final String place;
        /** Null where none is known. */
        private final byte[] pinned;

        Pin(String place, byte[] pinned) {
            this.place = place;
            this.pinned = pinned;
        }

        private static final class Wrong extends CertificateException {
            private static final long serialVersionUID = 1;

            Wrong(String message) {
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
            if (pinned == null) {
                throw new Wrong(place + " is not known yet; its fingerprint is " + shown(found)
                    + ": compare it with what the daemon shows when it starts, then give it");
            }
            if (!MessageDigest.isEqual(found, pinned)) {
                throw new Wrong(place + " shows the fingerprint " + shown(found)
                    + ", not the expected " + shown(pinned)
                    + ": check the address, and what the daemon shows when it starts");
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
            throw new CertificateException("no client has a certificate");
        }

        @Override
        public void checkClientTrusted(X509Certificate[] chain, String type, SSLEngine engine)
            throws CertificateException {
            throw new CertificateException("no client has a certificate");
        }

        @Override
        public void checkClientTrusted(X509Certificate[] chain, String type)
            throws CertificateException {
            throw new CertificateException("no client has a certificate");
        }

        @Override
        public X509Certificate[] getAcceptedIssuers() {
            return new X509Certificate[0];
        }
    }
}
