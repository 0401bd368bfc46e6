package org.bankfull;

/** Is told now and then how far a transfer is, by a thread of its own. */
public interface Progress {
    /**
     * How far it is.
     *
     * @param files files settled: in place, here already, or failed
     * @param filesKnown files announced so far
     * @param bytes bytes of content that arrived and were verified
     * @param bytesKnown bytes of the files announced so far
     */
    void at(long files, long filesKnown, long bytes, long bytesKnown);
}
