//! Tensors in a queue or pipe of `multiprocessing`: the sender keeps each one alive until a receiver has
//! leased it.
//!
//! A queue carries only a descriptor, and a descriptor keeps no tensor alive. So the sender holds the tensor:
//!
//! 1. The sender adds the tensor to its [`outbox`] and sends its descriptor, a token and the address of its
//!    [`ack_socket`].
//! 2. The receiver leases the tensor by its descriptor, then sends the token to that address.
//! 3. A thread of the sender receives the token and releases the tensor. It never takes the GIL.
//!
//! If no receiver takes the descriptor out of the queue, the sender holds the tensor until it calls
//! `cenote.recall` or ends. A child process of `multiprocessing` waits a few seconds for its receivers before
//! it ends.
//!
//! A token is hard to guess, and an unknown token has no effect. A correct token that arrives too early
//! releases the tensor; the receiver then fails with `Stale`, and nothing worse happens.

pub(crate) mod ack_socket;
pub(crate) mod outbox;
