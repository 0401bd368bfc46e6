package org.bankfull.engine;

import java.io.IOException;

/** Look at the end of a session, for long loops on its behalf. */
interface StopCheck {
    /** Throws if the session has ended. */
    void throwIfOver() throws IOException;
}
