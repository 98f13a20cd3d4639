//! What the pool of a process knows of the layer above: next to nothing.

use std::sync::Arc;

use crate::ipc::pool::owner::Owner;
use crate::ipc::pool::owner::tlsf::allocator::Slot;
use crate::ipc::pool::reader::attachment::Attachment;

/// What a pool keeps for a slot.
pub(crate) trait Spared: Send + Sync + Sized + 'static {
    /// The slot it is for.
    fn slot(&self) -> Slot;

    /// The bytes that were asked for.
    fn len(&self) -> usize;

    /// Where its bytes are.
    fn bytes(&self) -> *const u8;

    /// The pool that it goes back to, if this process owns that.
    fn owner(&self) -> Option<&Arc<Owner<Self>>>;

    /// The same, if another process does.
    fn attachment(&self) -> Option<&Arc<Attachment<Self>>>;
}
