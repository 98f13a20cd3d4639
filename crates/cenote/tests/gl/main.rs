//! OpenGL: the suite of all tensors over its buffers, and tests of OpenGL alone. All of it runs twice, in
//! separate processes: with buffers that stay mapped, and with a driver without those. `scripts/test gl`
//! installs a driver and runs it.

#![allow(clippy::unwrap_used)]

mod access;
mod application_context;
mod dmabuf;
mod errors;
mod leaks;
mod lost_context;
mod round_trip;
#[allow(dead_code, reason = "it has a main")]
#[path = "../tensor/main.rs"]
mod suite;
mod unified_buffer;

use std::env;
use std::process::{Command, ExitCode};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use cenote::{CopyReason, Error, GlContext, GlError, GlGone, Result, TensorMemory};
use libtest_mimic::{Arguments, Trial};

/// Mesa's variable that disables extensions, and the extensions by which buffers stay mapped.
const OVERRIDE: &str = "MESA_EXTENSION_OVERRIDE";
const WITHOUT: &str = "-GL_EXT_buffer_storage -GL_ARB_buffer_storage";

/// The environment variable with the role of a child.
const TASK: &str = "CENOTE_TEST_GL_TASK";

type Test = fn();

macro_rules! table {
    ($($module:ident: $($name:ident)*;)*) => {
        &[$($((concat!(stringify!($module), "::", stringify!($name)), $module::$name as Test),)*)*]
    };
}

const TABLE: &[(&str, Test)] = table![
    round_trip:
        a_1080p_frame_comes_back_byte_for_byte
        every_kind_of_texel_comes_back_or_is_refused
        padded_rows_and_regions_come_back
        planes_are_textures_of_their_own
        other_memory_is_copied_and_counted
        a_drawn_image_is_read_from_its_framebuffer
        code_that_needs_the_bytes_waits_for_fences;
    access:
        the_driver_is_the_requested_one
        a_map_of_a_part_is_that_part
        readers_share_a_map
        tensors_are_used_from_many_threads
        async_tasks_use_tensors
        work_may_request_more_work
        a_panic_is_passed_on_and_leaves_the_thread_alive
        forced_to_the_heap_everything_still_works
        a_topic_stages_it_once;
    unified_buffer:
        a_side_is_transferred_when_it_is_behind
        data_that_the_device_wrote_is_downloaded
        devices_can_be_changed
        lengths_must_match;
    application_context:
        its_context_is_used_on_its_thread
        objects_that_the_application_bound_stay_bound
        calls_on_its_own_thread_do_not_wait
        an_order_is_kept_between_threads
        a_thread_that_ends_is_an_error
        a_thread_that_is_blocked_is_an_error
        work_that_was_given_up_is_never_done
        work_that_was_begun_is_waited_for
        requests_of_other_threads_wait_until_the_thread_is_done
        closing_deletes_what_was_made;
    errors:
        closed_while_a_map_is_alive
        closed_for_all_holders
        textures_and_tensors_must_be_alike
        tensors_of_another_context_are_refused
        shared_tensors_are_not_written
        sizes_that_cannot_be
        without_a_library_it_is_an_error
        a_driver_that_is_too_old_is_an_error
        a_forked_child_gets_an_error;
    lost_context:
        reset_while_a_map_is_alive
        reset_in_the_middle_of_something
        a_thread_that_takes_no_work_while_a_map_is_alive
        bytes_that_the_driver_lost_are_an_error_until_all_are_written_again
        a_transfer_that_fails_is_fenced_and_leaves_nothing_attached;
    dmabuf:
        a_descriptor_that_is_no_dma_buf_is_refused
        descriptors_are_not_leaked;
    leaks:
        nothing_is_left_behind
        a_context_ends_with_its_last_holder
        errors_leave_nothing_behind;
];

fn main() -> ExitCode {
    if let Some(task) = env::var_os(TASK) {
        return errors::task(&task.to_string_lossy());
    }
    let conclusion = libtest_mimic::run(&Arguments::from_args(), trials());
    let code = conclusion.exit_code();
    // The VM is slow, and only tests DMA-BUFs, which do not depend on how buffers are mapped.
    if is_fallback() || in_vm() || env::args().any(|arg| arg == "--list") {
        return code;
    }
    println!("-- without persistent maps");
    let mut again = Command::new(env::current_exe().unwrap());
    let passed = again.args(env::args_os().skip(1)).env(OVERRIDE, WITHOUT).status().unwrap();
    if passed.success() { code } else { ExitCode::FAILURE }
}

/// Whether this is the process whose driver has no persistent maps.
fn is_fallback() -> bool {
    env::var_os(OVERRIDE).is_some()
}

fn in_vm() -> bool {
    env::var_os("CENOTE_TEST_VM").is_some()
}

fn trials() -> Vec<Trial> {
    let mode = if is_fallback() { "pbo-fallback" } else { "pbo" };
    let suite = suite::SUITE.iter().copied().flatten().map(|&(name, test)| {
        Trial::test(format!("{mode}::{name}"), move || {
            suite::OPTIONS.set(Some(context().options()));
            test(TensorMemory::Pbo);
            Ok(())
        })
    });
    let own = TABLE.iter().map(|&(name, test)| {
        Trial::test(format!("{mode}::{name}"), move || {
            test();
            Ok(())
        })
    });
    let vm = dmabuf::VM.iter().filter(|_| in_vm()).map(|&(name, test)| {
        Trial::test(format!("{mode}::dmabuf::{name}"), move || {
            test();
            Ok(())
        })
    });
    suite.chain(own).chain(vm).collect()
}

/// The context that tests share unless they need a separate one.
fn context() -> &'static GlContext {
    static CONTEXT: OnceLock<GlContext> = OnceLock::new();
    CONTEXT.get_or_init(|| GlContext::headless().unwrap())
}

/// A test that counts copies, or open resources of the process, runs alone.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn copied(reason: CopyReason) -> (u64, u64) {
    let copies = cenote::copies().into_iter().find(|copies| copies.reason == reason).unwrap();
    (copies.count, copies.bytes)
}

fn gone<T>(result: Result<T>) -> GlGone {
    match result.map(drop) {
        Err(Error::Gl(GlError::Gone { why })) => why,
        other => panic!("not gone: {other:?}"),
    }
}

/// Pseudo-random bytes, the same in every run.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    (0..len).map(|_| next()).collect()
}
