// Runs llama.cpp beside our engine: the same model, the same batches, timed in the same rounds.
//
//   llama_worker MODEL.gguf THREADS       then commands on stdin, one JSON line each on stdout:
//     decode BATCH STEPS   {"seconds": time of STEPS greedy steps of BATCH sequences, "tokens": [first sequence]}
//     prefill TOKENS       {"seconds": time until a prompt of TOKENS tokens has its first answer token}
//   llama_worker --quantize IN.gguf OUT.gguf q8_0|q4_0
//
// A step is one llama_decode over one token of each sequence and the choice of the next tokens.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "llama.h"

namespace {

constexpr int kPromptTokens = 4;  // of each sequence before decoding; as in worker_loop.py
constexpr int kWarmSteps = 3;

[[noreturn]] void fail(const std::string & what) {
    std::fprintf(stderr, "llama_worker: %s\n", what.c_str());
    std::exit(1);
}

// The prompt that every worker reads: token `place` of sequence `sequence`.
llama_token prompt_token(int sequence, int place) {
    return (sequence * 7919 + place * 104729) % 65000 + 1;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// llama_batch with its arrays, filled anew for each call.
class Batch {
public:
    explicit Batch(int capacity) : batch_(llama_batch_init(capacity, 0, 1)) {}
    ~Batch() { llama_batch_free(batch_); }
    Batch(const Batch &) = delete;
    Batch & operator=(const Batch &) = delete;

    void clear() { batch_.n_tokens = 0; }

    void add(llama_token token, int position, int sequence, bool wants_logits) {
        const int at = batch_.n_tokens++;
        batch_.token[at] = token;
        batch_.pos[at] = position;
        batch_.n_seq_id[at] = 1;
        batch_.seq_id[at][0] = sequence;
        batch_.logits[at] = wants_logits;
    }

    void run(llama_context * context) const {
        if (llama_decode(context, batch_) != 0) fail("llama_decode failed");
    }

private:
    llama_batch batch_;
};

class Worker {
public:
    Worker(llama_model * model, int threads)
        : model_(model), threads_(threads),
          vocabulary_(llama_vocab_n_tokens(llama_model_get_vocab(model))) {}

    std::string decode(int sequences, int steps) {
        llama_context * context = context_for(sequences, sequences * kPromptTokens, sequences);
        llama_memory_clear(llama_get_memory(context), true);
        Batch batch(sequences * kPromptTokens);
        std::vector<int> asked;
        for (int s = 0; s < sequences; ++s) {
            for (int place = 0; place < kPromptTokens; ++place) {
                batch.add(prompt_token(s, place), place, s, place == kPromptTokens - 1);
            }
            asked.push_back((s + 1) * kPromptTokens - 1);
        }
        batch.run(context);
        std::vector<llama_token> next = choose(context, asked);
        std::string tokens = std::to_string(next[0]);
        for (int s = 0; s < sequences; ++s) asked[s] = s;

        auto start = std::chrono::steady_clock::now();
        for (int step = 0; step < kWarmSteps + steps; ++step) {
            if (step == kWarmSteps) start = std::chrono::steady_clock::now();
            batch.clear();
            for (int s = 0; s < sequences; ++s) batch.add(next[s], kPromptTokens + step, s, true);
            batch.run(context);
            next = choose(context, asked);
            tokens += ", " + std::to_string(next[0]);
        }
        return "{\"seconds\": " + std::to_string(seconds_since(start)) + ", \"tokens\": [" + tokens + "]}";
    }

    std::string prefill(int count) {
        llama_context * context = context_for(1, count, 1);
        llama_memory_clear(llama_get_memory(context), true);
        Batch batch(count);
        for (int place = 0; place < count; ++place) {
            batch.add(prompt_token(0, place), place, 0, place == count - 1);
        }
        const auto start = std::chrono::steady_clock::now();
        batch.run(context);
        choose(context, {count - 1});
        return "{\"seconds\": " + std::to_string(seconds_since(start)) + "}";
    }

private:
    // A context of its own for each batch size, so that none pays for another's buffers.
    llama_context * context_for(int sequences, int tokens, int outputs) {
        llama_context *& context = contexts_[{sequences, tokens}];
        if (context) return context;
        llama_context_params params = llama_context_default_params();
        params.n_ctx = sequences * 4096;
        params.n_batch = params.n_ubatch = tokens;
        params.n_seq_max = sequences;
        params.n_outputs_max = outputs;
        params.n_threads = params.n_threads_batch = threads_;
        params.no_perf = true;
        context = llama_init_from_model(model_, params);
        if (!context) fail("no context");
        return context;
    }

    std::vector<llama_token> choose(llama_context * context, const std::vector<int> & rows) const {
        std::vector<llama_token> chosen;
        for (int row : rows) {
            const float * logits = llama_get_logits_ith(context, row);
            float best = logits[0];
            for (int i = 1; i < vocabulary_; ++i) best = logits[i] > best ? logits[i] : best;
            chosen.push_back(static_cast<llama_token>(std::find(logits, logits + vocabulary_, best) - logits));
        }
        return chosen;
    }

    llama_model * model_;
    int threads_;
    int vocabulary_;
    std::map<std::pair<int, int>, llama_context *> contexts_;
};

int quantize(const char * source, const char * target, const std::string & kind) {
    llama_model_quantize_params params = llama_model_quantize_default_params();
    params.ftype = kind == "q8_0" ? LLAMA_FTYPE_MOSTLY_Q8_0 : LLAMA_FTYPE_MOSTLY_Q4_0;
    return static_cast<int>(llama_model_quantize(source, target, &params));
}

}  // namespace

int main(int argc, char ** argv) {
    llama_log_set([](ggml_log_level level, const char * text, void *) {
        if (level >= GGML_LOG_LEVEL_ERROR) std::fputs(text, stderr);
    }, nullptr);
    llama_backend_init();
    if (argc == 5 && std::strcmp(argv[1], "--quantize") == 0) return quantize(argv[2], argv[3], argv[4]);
    if (argc != 3) fail("wanted: MODEL THREADS");
    llama_model * model = llama_model_load_from_file(argv[1], llama_model_default_params());
    if (!model) fail(std::string("cannot load ") + argv[1]);
    Worker worker(model, std::atoi(argv[2]));
    std::cout << "{\"ready\": true}" << std::endl;
    for (std::string line; std::getline(std::cin, line);) {
        std::istringstream words(line);
        std::string command;
        int first = 0, second = 0;
        words >> command >> first >> second;
        if (command == "decode") std::cout << worker.decode(first, second) << std::endl;
        else if (command == "prefill") std::cout << worker.prefill(first) << std::endl;
        else fail("unknown command: " + line);
    }
}
