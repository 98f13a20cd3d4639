//! What can go wrong with topics.

macro_rules! topic {
    ($parts:tt $($before:tt)*) => { gather! { $parts $($before)*
        /// A topic was used in a forked child.
        #[error(
            "topic `{topic}` was inherited through fork; make it again in this process to use it"
        )]
        ForkedTopic {
            /// The topic.
            topic: String,
        },

        /// A subscriber has not taken what the next message would push out.
        #[error(
            "topic `{topic}` is full: {program} (pid {pid}) has not taken its messages{}",
            why::waited(*waited)
        )]
        SlowSubscriber {
            /// The topic.
            topic: String,
            /// The process id of the subscriber; 0 if it cannot be seen from here.
            pid: i32,
            /// Its program.
            program: String,
            /// How long it was waited for.
            waited: Duration,
        },

        /// A topic carries something else.
        #[error("topic `{topic}` carries {ours} here, but {program} (pid {pid}) sends {theirs}")]
        TypeMismatch {
            /// The topic.
            topic: String,
            /// What is expected here.
            ours: String,
            /// What the publisher sends.
            theirs: String,
            /// The process id of the publisher; 0 if it cannot be seen from here.
            pid: i32,
            /// Its program.
            program: String,
        },
    } };
}
