#include "tools/onnxtrain/flags/flags.h"

#include <gtest/gtest.h>

#include <map>

#include "frontend/base/status.h"
#include "tools/onnxtrain/flags/flag_lines.h"

namespace onnxtrain::cli {
namespace {

const std::vector<CommandSpec> kCommands = {
    {"train",
     {{"model"},
      {"data"},
      {"eval_data"},
      {"input", false, true},
      {"freeze", false, true},
      {"batch_size"},
      {"lr"},
      {"ignore_index"},
      {"no_decay"},
      {"quantize_base"},
      {"normalize"},
      {"shuffle", true},
      {"drop_last", true},
      {"overwrite", true},
      {"mixed_precision"},
      {"eval_split"},
      {"save_every"},
      {"max_steps"},
      {"gradient_checkpointing", false, false, "none|all"},
      {"resume", false, false, "[auto|PATH]"}}},
    {"eval", {{"model"}, {"data"}, {"json", true}}},
    {"inspect", {{"model"}, {"json", true}}},
};

// Flag files of the tests.
const std::map<std::string, std::string> kFiles = {
    {"a.flags", "# a comment\n\n--lr=0.1\n  --data  some file.npz \n--no-shuffle\r\n--freeze=conv*\n"},
    {"nested.flags", "--flagfile=sub/inner.flags\n--lr 0.5\n"},
    {"sub/inner.flags", "--lr 0.2\n--flagfile deeper.flags\n--batch_size=8\n"},
    {"sub/deeper.flags", "--lr=0.3\n--batch-size=4\n--drop-last"},
    {"self.flags", "--flagfile=self.flags\n"},
    {"loop1.flags", "--flagfile=loop2.flags\n"},
    {"loop2.flags", "--flagfile loop1.flags\n"},
    {"twice.flags", "--lr=1\n--lr=2\n"},
    {"unknown.flags", "--lr=1\n--batchsize=2\n"},
    {"word.flags", "lr=1\n"},
    {"empty.flags", ""},
    {"blank.flags", "\n\n   \n#--lr=3\n"},
    {"missing.flags", "--lr\n"},
    {"other.flags", "--learning_rate=0.1\n--bf16\n"},
    {"refused.flags", "--lr=1\n--report_to=none\n"},
    {"a.yaml", "# a comment\nlr: 1e-4\ndata: some file.npz\nshuffle: no\nfreeze: [conv*, 'fc, b']\nmax-steps:\n"},
    {"a.json", R"({"lr": 0.5, "freeze": ["a"], "drop_last": true})"},
    {"groups.yaml", "model: {model: x.onnx}\ntraining:\n  lr: 0.1\n  batch: {size: 8}\ninput: {x: a, y: [b, c]}\n"},
    {"list.yaml", "lr: [1, 2]\n"},
    {"again.yaml", "lr: 1\nlr: 2\n"},
    {"includes.yaml", "config: [sub/inner.yaml]\nflagfile: sub/deeper.flags\nlr: 5\n"},
    {"sub/inner.yaml", "lr: 1\nmax_steps: 3\n"},
    {"self.yaml", "config: self.yaml\n"},
    {"unknown.yaml", "lr: 1\nbatchsize: 2\n"},
    {"unset.yaml", "lr: 1\nbatchsize:\n"},
    {"records.yaml", "lr: 1\ndata:\n  - path: x\n"},
    {"text.yaml", "just words\n"},
    {"broken.yaml", "lr: 1\ndata: [a\n"},
    {"two.yaml", "lr: 1\n---\nlr: 2\n"},
    {"theirs.yaml", "learning_rate: 0.1\nbf16: true\n"},
    {"refused.yaml", "lr: 1\nreport_to: none\n"},
    {"bomb.yaml", "a: &a {b: 1}\nc: &c {d: *a, e: *a}\n"},
    {"empty.yaml", "# nothing\n"},
};

absl::StatusOr<Arguments> Parse(const std::string& line) {
  // Words are divided by blanks; '~' stands for an empty word and '^' for a blank inside one.
  std::vector<std::string> words;
  for (size_t begin = 0; begin < line.size();) {
    const size_t end = std::min(line.find(' ', begin), line.size());
    std::string word = line.substr(begin, end - begin);
    std::replace(word.begin(), word.end(), '^', ' ');
    words.push_back(word == "~" ? "" : word);
    begin = end + 1;
  }
  return ParseArguments(words, kCommands, [](const std::string& path) -> absl::StatusOr<std::string> {
    const auto it = kFiles.find(path);
    if (it == kFiles.end()) return absl::NotFoundError("No such file");
    return it->second;
  });
}

// "train lr=1 shuffle=false": the command and what it was told, in order; what was overridden stands before.
std::string Text(const Arguments& args) {
  std::string text = args.command;
  if (args.help) text += " HELP";
  if (args.version) text += " VERSION";
  for (const SpecifiedFlag& f : args.flags) StrAppend(&text, " ", f.name, "=", f.value);
  return text;
}

struct Row {
  const char* line;
  const char* result;  // Text(), or "ERROR part of the message"
};

class Prepass : public testing::TestWithParam<Row> {};

TEST_P(Prepass, Parses) {
  const auto args = Parse(GetParam().line);
  const std::string want = GetParam().result;
  if (!want.starts_with("ERROR ")) {
    ASSERT_TRUE(args.ok()) << args.status();
    EXPECT_EQ(Text(*args), want);
    return;
  }
  ASSERT_FALSE(args.ok()) << Text(*args);
  const std::string message(ToStd(args.status().message()));
  EXPECT_NE(message.find(want.substr(6)), std::string::npos) << message;
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
}

const Row kSubcommands[] = {
    {"", "train"},
    {"train", "train"},
    {"eval", "eval"},
    {"inspect --json", "inspect json=true"},
    {"--lr 1", "train lr=1"},
    {"train --lr 1", "train lr=1"},
    {"eval --data x", "eval data=x"},
    {"trian", "ERROR 'trian': unknown subcommand; did you mean train?"},
    {"evaluate", "ERROR 'evaluate': unknown subcommand; did you mean eval?"},
    {"bench", "ERROR 'bench': unknown subcommand"},
    {"Train", "ERROR did you mean train?"},
    {"x.onnx", "ERROR did you mean --model x.onnx?"},
    {"quantize", "ERROR 'quantize': unknown subcommand (see onnxtrain --help)"},
    {"~", "ERROR unknown subcommand"},
    {"--model x eval", "ERROR 'eval': the subcommand must be the first word"},
    {"train eval", "ERROR 'eval': the subcommand must be the first word"},
    {"train train", "ERROR 'train': the subcommand must be the first word"},
    {"--model m.onnx train --lr 1", "ERROR the subcommand must be the first word"},
};

const Row kValues[] = {
    {"--model m.onnx", "train model=m.onnx"},
    {"--model=m.onnx", "train model=m.onnx"},
    {"-model m.onnx", "train model=m.onnx"},
    {"-model=m.onnx", "train model=m.onnx"},
    {"--batch-size 8", "train batch_size=8"},
    {"--batch_size 8", "train batch_size=8"},
    {"--batch-size=8", "train batch_size=8"},
    {"--batch_size=8", "train batch_size=8"},
    {"--data a=b", "train data=a=b"},
    {"--data=a=b", "train data=a=b"},
    {"--data=a-b_c", "train data=a-b_c"},
    {"--data a^b", "train data=a b"},
    {"--ignore-index -100", "train ignore_index=-100"},
    {"--ignore-index=-1", "train ignore_index=-1"},
    {"--lr -.5", "train lr=-.5"},
    {"--data -", "train data=-"},
    {"--no-decay none", "train no_decay=none"},
    {"--no-decay=*bias", "train no_decay=*bias"},
    {"--no_decay *.b", "train no_decay=*.b"},
    {"--normalize raw", "train normalize=raw"},
    {"--data eval", "train data=eval"},
    {"--data true", "train data=true"},
    {"--data", "ERROR --data: the value is missing"},
    {"--lr 1 --data", "ERROR --data: the value is missing"},
    {"--data ~", "ERROR --data: the value is empty"},
    {"--data=", "ERROR --data: the value is empty"},
    {"--data ^", "ERROR --data: the value is empty"},
    {"--batch-size ~", "ERROR --batch-size: the value is empty"},
    {"--eval-data --shuffle", "ERROR --eval-data: the value is missing (next comes '--shuffle')"},
    {"--eval-data --shuffle false", "ERROR --eval-data: the value is missing"},
    {"--data=--shuffle", "ERROR --data: the value is missing"},
    {"--model --data x", "ERROR --model: the value is missing"},
    {"--data --", "ERROR --data: the value is missing"},
    {"--data x y", "ERROR 'y': a word that belongs to no flag"},
    {"--lr 1 x.onnx", "ERROR did you mean --model x.onnx?"},
    {"--data x --", "ERROR '--': a word that belongs to no flag"},
    {"--data x -", "ERROR '-': a word that belongs to no flag"},
    {"--data x -1", "ERROR '-1': a word that belongs to no flag"},
    {"--data x ~", "ERROR '': a word that belongs to no flag"},
    {"--batch-size 32 64", "ERROR '64': a word that belongs to no flag"},
};

const Row kSwitches[] = {
    {"--shuffle", "train shuffle=true"},
    {"--no-shuffle", "train shuffle=false"},
    {"--no_shuffle", "train shuffle=false"},
    {"--noshuffle", "train shuffle=false"},
    {"--shuffle=true", "train shuffle=true"},
    {"--shuffle=false", "train shuffle=false"},
    {"--shuffle=yes", "train shuffle=true"},
    {"--shuffle=no", "train shuffle=false"},
    {"--shuffle=on", "train shuffle=true"},
    {"--shuffle=off", "train shuffle=false"},
    {"--shuffle=1", "train shuffle=true"},
    {"--shuffle=0", "train shuffle=false"},
    {"--shuffle true", "train shuffle=true"},
    {"--shuffle false", "train shuffle=false"},
    {"--shuffle no", "train shuffle=false"},
    {"--shuffle 0", "train shuffle=false"},
    {"--shuffle false --lr 1", "train shuffle=false lr=1"},
    {"--shuffle --lr 1", "train shuffle=true lr=1"},
    {"--drop-last", "train drop_last=true"},
    {"--no-drop-last", "train drop_last=false"},
    {"--drop_last=false", "train drop_last=false"},
    {"--nodrop-last", "train drop_last=false"},
    {"--nodrop_last", "train drop_last=false"},
    {"--shuffle maybe", "ERROR 'maybe': a word that belongs to no flag"},
    {"--shuffle=maybe", "ERROR --shuffle: expected true or false, got 'maybe'"},
    {"--shuffle=", "ERROR --shuffle: expected true or false, got ''"},
    {"--no-shuffle=false", "ERROR --no-shuffle: takes no value"},
    {"--no-shuffle=true", "ERROR --no-shuffle: takes no value"},
    {"--no-shuffle false", "ERROR 'false': a word that belongs to no flag"},
    {"--no-data x", "ERROR --no-data: --data is no switch"},
    {"--no-lr", "ERROR --no-lr: --lr is no switch"},
    {"eval --no-json", "eval json=false"},
};

const Row kRepeated[] = {
    {"--input a=b --input c=d", "train input=a=b input=c=d"},
    {"--input=a=b --input c=d,e", "train input=a=b input=c=d,e"},
    {"--freeze a --freeze b --freeze c", "train freeze=a freeze=b freeze=c"},
    {"--freeze a --freeze a", "train freeze=a freeze=a"},
    {"--lr 1 --lr 2", "ERROR --lr: given twice (1 and 2)"},
    {"--lr 1 --lr 1", "ERROR --lr: given twice"},
    {"--lr 1 -lr=2", "ERROR --lr: given twice"},
    {"--batch-size 1 --batch_size 2", "ERROR --batch-size: given twice"},
    {"--shuffle --no-shuffle", "ERROR --shuffle: given twice (true and false)"},
    {"--shuffle --shuffle", "ERROR --shuffle: given twice"},
    {"--model a --lr 1 --model b", "ERROR --model: given twice (a and b)"},
};

const Row kUnknown[] = {
    {"--bach-size 8", "ERROR --bach-size: unknown flag; did you mean --batch-size?"},
    {"--batchsize 8", "ERROR did you mean --batch-size?"},
    {"--batch 8", "ERROR did you mean --batch-size?"},
    {"--learning-rat 8", "ERROR --learning-rat: unknown flag; did you mean --lr?"},
    {"--modle x", "ERROR did you mean --model?"},
    {"--Model x", "ERROR did you mean --model?"},
    {"--shufle", "ERROR did you mean --shuffle?"},
    {"--no-shufle", "ERROR did you mean --no-shuffle?"},
    {"--flagfil x", "ERROR did you mean --flagfile?"},
    {"--hlep", "ERROR did you mean --help?"},
    {"--eval_dta x", "ERROR did you mean --eval-data?"},
    {"--xyzzy", "ERROR --xyzzy: unknown flag (see onnxtrain train --help)"},
    {"--v 3", "ERROR --v: unknown flag"},
    {"--logtostderr", "ERROR unknown flag"},
    {"--undefok=lr", "ERROR unknown flag"},
    {"--helpfull", "ERROR unknown flag"},
    {"--=x", "ERROR unknown flag"},
    {"eval --lr 1", "ERROR --lr: no flag of 'eval' (it belongs to train)"},
    {"eval --shuffle", "ERROR --shuffle: no flag of 'eval' (it belongs to train)"},
    {"train --json", "ERROR --json: no flag of 'train' (it belongs to eval, inspect)"},
    {"inspect --data x", "ERROR --data: no flag of 'inspect' (it belongs to train, eval)"},
};

// Names of other libraries (optim/config/config_synonyms.h).
const Row kOtherNames[] = {
    {"--learning-rate 8", "train lr=8"},
    {"--learning_rate=8", "train lr=8"},
    {"-learning_rate 8", "train lr=8"},
    {"--learning-rate", "ERROR --learning-rate: the value is missing"},
    {"--lr 1 --learning-rate 2", "ERROR --lr: given twice (1 and 2)"},
    {"--validation-split 0.2", "train eval_split=last:0.2"},
    {"--save-steps 500", "train save_every=500"},
    {"--save-strategy epoch", "train save_every=1ep"},
    {"--save-strategy steps", "ERROR --save-strategy: 'steps': the Trainer's `save_strategy` steps needs a number"},
    {"--save-strategy steps --save-steps 500", "train save_every=500 save_every=500"},
    {"--save-strategy best", "ERROR --save-strategy: 'best': the Trainer's `save_strategy` steps needs a number"},
    {"--bf16", "train mixed_precision=bf16"},
    {"--bf16 True", "train mixed_precision=bf16"},
    {"--bf16=False", "train mixed_precision=no"},
    {"--no-bf16", "train mixed_precision=no"},
    {"--bf16 True --fp16 False", "train mixed_precision=bf16"},
    {"--fp16 False --bf16 True --tf32 False", "train mixed_precision=bf16"},
    {"--bf16 False --fp16 False", "train mixed_precision=no"},
    {"--bf16 False --mixed-precision fp16", "train mixed_precision=fp16"},
    {"--flagfile other.flags --bf16 False", "train lr=0.1 mixed_precision=bf16 mixed_precision=no"},
    {"--flagfile other.flags --fp16 False", "train lr=0.1 mixed_precision=bf16"},
    {"--fp16 --lr 1", "train mixed_precision=fp16 lr=1"},
    {"--no-learning-rate", "ERROR --no-learning-rate: unknown flag"},
    {"--dataloader-drop-last", "train drop_last=true"},
    {"--resume-from-checkpoint r", "train resume=r"},
    {"--resume-from-checkpoint True", "train resume=auto"},
    {"--resume-from-checkpoint", "train resume=auto"},
    {"--resume-from-checkpoint False", "train resume="},
    {"--resume-from-checkpoint False --resume r", "train resume= resume=r"},
    {"--report-to none", "ERROR --report-to: unknown flag; the Trainer's `report_to` is not needed"},
    {"--load_in_4bit=True", "train quantize_base=nf4"},
    {"eval --learning-rate 1", "ERROR --learning-rate: is --lr here, no flag of 'eval' (it belongs to train)"},
    {"--flagfile other.flags", "train lr=0.1 mixed_precision=bf16"},
    {"--flagfile refused.flags", "ERROR refused.flags: line 2: --report-to: unknown flag"},
};

// Flags whose value may be left out.
const Row kImplied[] = {
    {"--resume", "train resume=auto"},
    {"--resume --lr 1", "train resume=auto lr=1"},
    {"--resume runs/a", "train resume=runs/a"},
    {"--resume=runs/a", "train resume=runs/a"},
    {"--resume -", "train resume=-"},
    {"--resume ~", "ERROR --resume: the value is empty"},
    {"--max-steps -1", "train max_steps="},
    {"--max-steps 5", "train max_steps=5"},
    {"--gradient-checkpointing False", "train gradient_checkpointing=none"},
    {"--gradient-checkpointing True", "ERROR 'True': the Trainer's `gradient_checkpointing` is a switch; here it says"},
    {"--gradient-checkpointing", "ERROR --gradient-checkpointing: the value is missing (none|all)"},
    {"--gradient-checkpointing --lr 1", "ERROR the value is missing (none|all; next comes '--lr')"},
};

const Row kQuestions[] = {
    {"--help", "train HELP"},
    {"-h", "train HELP"},
    {"-help", "train HELP"},
    {"eval --help", "eval HELP"},
    {"inspect -h", "inspect HELP"},
    {"eval --data x --help", "eval HELP"},
    {"eval --unknown --help", "eval HELP"},
    {"--data --help", "train HELP"},
    {"--version", "train VERSION"},
    {"eval --version", "train VERSION"},
    {"bench --help", "ERROR 'bench': unknown subcommand"},
};

const Row kFlagFiles[] = {
    {"--flagfile a.flags", "train lr=0.1 data=some file.npz shuffle=false freeze=conv*"},
    {"--flagfile=a.flags", "train lr=0.1 data=some file.npz shuffle=false freeze=conv*"},
    {"-flagfile a.flags", "train lr=0.1 data=some file.npz shuffle=false freeze=conv*"},
    {"--flagfile a.flags --lr 2", "train lr=0.1 data=some file.npz shuffle=false freeze=conv* lr=2"},
    {"--lr 2 --flagfile a.flags", "train lr=0.1 data=some file.npz shuffle=false freeze=conv* lr=2"},
    {"--freeze x --flagfile a.flags", "train lr=0.1 data=some file.npz shuffle=false freeze=conv* freeze=x"},
    {"--flagfile nested.flags", "train lr=0.3 batch_size=4 drop_last=true lr=0.2 batch_size=8 lr=0.5"},
    {"--flagfile nested.flags --batch-size 2",
     "train lr=0.3 batch_size=4 drop_last=true lr=0.2 batch_size=8 lr=0.5 batch_size=2"},
    {"--flagfile a.flags --flagfile sub/deeper.flags",
     "train lr=0.1 data=some file.npz shuffle=false freeze=conv* lr=0.3 batch_size=4 drop_last=true"},
    {"--flagfile empty.flags", "train"},
    {"--flagfile blank.flags", "train"},
    {"--flagfile self.flags", "ERROR --flagfile self.flags: includes itself"},
    {"--flagfile loop1.flags", "ERROR includes itself"},
    {"--flagfile none.flags", "ERROR --flagfile none.flags: No such file"},
    {"--flagfile twice.flags", "ERROR twice.flags: --lr: given twice (1 and 2)"},
    {"--flagfile unknown.flags", "ERROR unknown.flags: line 2: --batchsize: unknown flag; did you mean --batch-size?"},
    {"--flagfile word.flags", "ERROR word.flags: line 1: 'lr=1': a word that belongs to no flag"},
    {"--flagfile missing.flags", "ERROR missing.flags: line 1: --lr: the value is missing"},
    {"--flagfile", "ERROR --flagfile: the value is missing"},
    {"--flagfile ~", "ERROR --flagfile: the value is empty"},
    {"eval --flagfile a.flags", "ERROR a.flags: line 3: --lr: no flag of 'eval'"},
    {"--flagfile a.flags --lr 1 --lr 2", "ERROR --lr: given twice"},
};

const Row kYaml[] = {
    {"--config a.yaml", "train lr=1e-4 data=some file.npz shuffle=false freeze=conv* freeze=fc, b"},
    {"--config a.json --lr 1", "train lr=0.5 freeze=a drop_last=true lr=1"},
    {"--lr 1 --config a.json", "train lr=0.5 freeze=a drop_last=true lr=1"},
    {"--config groups.yaml", "train model=x.onnx lr=0.1 batch_size=8 input=x=a input=y=b,c"},
    {"--config list.yaml", "train lr=1,2"},
    {"--config again.yaml", "ERROR again.yaml: --lr: given twice (1 and 2)"},
    {"--config includes.yaml", "train lr=1 max_steps=3 lr=0.3 batch_size=4 drop_last=true lr=5"},
    {"--config self.yaml", "ERROR self.yaml: line 1: --config self.yaml: includes itself"},
    {"--config unknown.yaml", "ERROR unknown.yaml: line 2: --batchsize: unknown flag; did you mean --batch-size?"},
    {"--config unset.yaml", "ERROR unset.yaml: line 2: --batchsize: unknown flag"},
    {"--config records.yaml", "ERROR records.yaml: line 2: 'data': expected a value, a list of values or NAME: VALUE"},
    {"--config text.yaml", "ERROR text.yaml: line 1: expected `name: value`"},
    {"--config broken.yaml", "ERROR broken.yaml: line 3: "},
    {"--config two.yaml", "ERROR two.yaml: line 3: a second document"},
    {"--config theirs.yaml", "train lr=0.1 mixed_precision=bf16"},
    {"--config refused.yaml", "ERROR refused.yaml: line 2: --report-to: unknown flag; the Trainer's `report_to`"},
    {"--config bomb.yaml", "ERROR bomb.yaml: line 1: --b: unknown flag"},
    {"--config empty.yaml", "train"},
    {"--config none.yaml", "ERROR --config none.yaml: No such file"},
    {"eval --config a.yaml", "ERROR a.yaml: line 2: --lr: no flag of 'eval'"},
};

INSTANTIATE_TEST_SUITE_P(Yaml, Prepass, testing::ValuesIn(kYaml));
INSTANTIATE_TEST_SUITE_P(Subcommands, Prepass, testing::ValuesIn(kSubcommands));
INSTANTIATE_TEST_SUITE_P(Values, Prepass, testing::ValuesIn(kValues));
INSTANTIATE_TEST_SUITE_P(Switches, Prepass, testing::ValuesIn(kSwitches));
INSTANTIATE_TEST_SUITE_P(Repeated, Prepass, testing::ValuesIn(kRepeated));
INSTANTIATE_TEST_SUITE_P(Unknown, Prepass, testing::ValuesIn(kUnknown));
INSTANTIATE_TEST_SUITE_P(OtherNames, Prepass, testing::ValuesIn(kOtherNames));
INSTANTIATE_TEST_SUITE_P(Implied, Prepass, testing::ValuesIn(kImplied));
INSTANTIATE_TEST_SUITE_P(Questions, Prepass, testing::ValuesIn(kQuestions));
INSTANTIATE_TEST_SUITE_P(FlagFiles, Prepass, testing::ValuesIn(kFlagFiles));

// Aliases of aliases stand for more entries than memory would hold.
TEST(Prepass, YamlOfManyAliasesIsRefused) {
  std::string text = "a0: &a0 {lr: 1}\n";
  for (int i = 1; i < 8; ++i) {
    StrAppend(&text, "a", i, ": &a", i, " {");
    for (int j = 0; j < 9; ++j) StrAppend(&text, "k", j, ": *a", i - 1, ", ");
    text += "}\n";
  }
  const auto is_flag = [](std::string_view name) { return name == "lr"; };
  const auto lines = ReadYamlFlags(text, is_flag, is_flag);
  EXPECT_EQ(ToStd(lines.status().message()).substr(8), "too many values") << lines.status();
}

// Every flag in every spelling means the same.
TEST(Prepass, SpellingsAgree) {
  for (const CommandSpec& command : kCommands) {
    for (const FlagSpec& flag : command.flags) {
      std::string dashed = flag.name;
      std::replace(dashed.begin(), dashed.end(), '_', '-');
      const std::string value = flag.boolean ? "true" : "7";
      const std::string want = StrCat(command.name, " ", flag.name, "=", value);
      for (const std::string& name : {flag.name, dashed}) {
        for (const std::string& line :
             {StrCat("--", name, " ", value), StrCat("--", name, "=", value), StrCat("-", name, "=", value)}) {
          const auto args = Parse(StrCat(command.name, " ", line));
          ASSERT_TRUE(args.ok()) << line << args.status();
          EXPECT_EQ(Text(*args), want) << line;
        }
      }
    }
  }
}

}  // namespace
}  // namespace onnxtrain::cli
