package org.bankfull.engine;

import java.io.IOException;

/** Check whether a session has ended, for long loops on its behalf. */
interface StopCheck {
    /** Throws if the session has ended. */
    void throwIfOver() throws IOException;
}
