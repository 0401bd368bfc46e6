//! Files: paths confined to a root, directories, and block-wise reads and writes.

pub(crate) mod block_io;
pub(crate) mod content;
pub(crate) mod dir_table;
pub(crate) mod earlier;
pub(crate) mod links;
pub(crate) mod ordered_output;
pub(crate) mod path_root;
pub(crate) mod patterns;
pub(crate) mod root;
pub(crate) mod roots;
pub(crate) mod spooled_input;
pub(crate) mod storage_quota;
