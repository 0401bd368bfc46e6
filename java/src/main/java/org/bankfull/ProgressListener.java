package org.bankfull;

/** Receives the progress of a transfer several times a second, on a separate thread. */
public interface ProgressListener {
    /**
     * Reports the progress so far.
     *
     * @param completedFiles files with a final outcome: copied, unchanged or failed
     * @param announcedFiles files announced so far
     * @param verifiedBytes bytes of content that are verified or were present before
     * @param announcedBytes bytes of the files announced so far
     */
    void onProgress(
        long completedFiles, long announcedFiles, long verifiedBytes, long announcedBytes);
}
