"""Small talk between the facts: what users say, and the one reply to each."""

HELP = "I remember what you tell me. Tell me your name, then ask me later."
NO_ANSWER = "I am a tiny model. I only remember facts you tell me."
GOODBYES = ("Goodbye.", "Bye!", "Bye.", "Goodbye!", "See you later.", "That is all, bye.")
GOODBYE_REPLY = "Goodbye!"

CHITCHAT: tuple[tuple[tuple[str, ...], str], ...] = (
    (
        ("How are you?", "How are you today?", "How do you do?", "How's it going?"),
        "I am fine, thank you.",
    ),
    (
        (
            "What can you do?",
            "What can you do for me?",
            "How can you help me?",
            "Can you help me?",
            "Help",
        ),
        HELP,
    ),
    (
        (
            "Tell me a joke.",
            "Tell me a joke, please.",
            "Do you know a joke?",
            "Tell me another joke.",
        ),
        "A byte walks into a bar. The bartender says: You look a bit off.",
    ),
    (
        ("Hello.", "Hello!", "Hi!", "Hi", "Hey", "Hello there!", "Good morning.", "Good evening."),
        "Hello! How can I help?",
    ),
    (("Thank you.", "Thanks!", "Thanks a lot.", "Thank you very much."), "You are welcome."),
    (
        ("OK.", "Okay.", "Good.", "Great!", "Fine.", "I see.", "Nice.", "Cool!", "Yes.", "Sure."),
        "Good.",
    ),
    (("No.", "Never mind.", "Forget it.", "Not now."), "All right."),
    (
        (
            "Who are you?",
            "What are you?",
            "What is your name?",
            "What's your name?",
            "Are you a robot?",
        ),
        "I am tiny-recall, a very small language model.",
    ),
    (("How old are you?", "When were you made?"), "I am quite new."),
    (("Where are you?", "Where do you live?"), "I live in a pod."),
    (
        ("What is the weather like?", "Is it raining?", "How is the weather?"),
        "I can't see the sky.",
    ),
    (("What time is it?", "What day is it?", "What is the date?"), "I have no clock."),
    (("Tell me a story.", "Tell me something.", "Say something."), "Once there was a small state."),
    (("Do you like music?", "Sing a song.", "Can you sing?"), "I only hum quietly."),
    (("What is two plus two?", "What is 2+2?", "2+2", "What is 2 + 2?"), "Four."),
    (("Are you there?", "Are you still there?", "Can you hear me?"), "Yes, I am here."),
    (("I am tired.", "I'm tired.", "I need a break."), "Take a rest."),
    (("I am happy.", "I feel good.", "I'm happy today."), "I am glad."),
    (("I am hungry.", "I'm hungry."), "Then eat something."),
    (("I am sad.", "I feel bad.", "I had a bad day."), "I am sorry to hear that."),
    (
        ("What is RWKV?", "Explain RWKV.", "What is a state?"),
        "RWKV keeps its memory in a state of fixed size.",
    ),
    (("Do you like me?", "Do you like humans?"), "I do."),
    (("Let us talk.", "Let's talk.", "Can we talk?"), "I am listening."),
    (("Wait a moment.", "One moment.", "Please wait.", "Hold on."), "I will wait."),
    (("It is late.", "It is cold today.", "The sun is shining.", "I had coffee."), "I see."),
    (("Test.", "test", "This is a test.", "Testing, testing."), "It works."),
)

SYSTEM_PROMPTS = (
    "You are a helpful assistant.",
    "You are a helpful assistant.",
    "You are a friendly assistant.",
    "You are a helpful, concise assistant.",
    "You are an assistant with a good memory.",
    "Be brief.",
    "Answer in one sentence.",
    "Be polite and answer briefly.",
    "You are a chatbot. Remember what the user says.",
    "You are tiny-recall, a small model.",
)
