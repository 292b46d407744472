#!/usr/bin/env python3
"""Compares chats with those of Hugging Face's transformers: texts, generation ranges, errors, tokens and masks.

    chat_templates.py PROGRAM [FOLDER...] [--expressions COUNT] [--tokenizer FOLDER]

PROGRAM is build/release/bin/render_chats. Reads every .jinja file of the folders, and of the packages trl and axolotl
if they are installed. Run by hand, in an environment with transformers, jinja2, trl and axolotl (pip download --no-deps
and unpacked: pass its folder). Also compares generated expressions (default 2000) with jinja2.

Token ids and masks are compared for a few dialogues of each template, with a tokenizer of transformers in a folder, or
one that is made of the documentation: the assistant's mask of {% generation %} blocks, or else of the turns between
rendered prefixes, and the mask of a completion, which are the tokens after those of its prompt, as in trl.
Prints each difference, and fails if there is one.
"""
import argparse
import glob
import importlib.util
import itertools
import json
import os
import random
import pathlib
import subprocess
import sys
import tempfile
from datetime import datetime

from transformers.utils import chat_template_utils as reference

SPECIAL_TOKENS = {'bos_token': '<s>', 'eos_token': '</s>', 'pad_token': '<pad>', 'unk_token': '<unk>'}
NOW = 1767225600  # 1 January 2026
WEATHER = {'type': 'function', 'function': {
    'name': 'get_weather', 'description': 'Returns the weather.\n\nOf a "city".',
    'parameters': {'type': 'object', 'required': ['city'], 'properties': {
        'city': {'type': 'string', 'description': 'Its name, as Zürich'},
        'days': {'type': ['integer', 'null'], 'default': 1, 'minimum': 0},
        'unit': {'type': 'string', 'enum': ['C', 'F']},
        'tags': {'type': 'array', 'items': {'type': 'string'}},
        'place': {'type': 'object', 'properties': {'x': {'type': 'number'}, 'y': {'type': 'number'}}}}},
    'return': {'type': 'string', 'description': 'text'}}}
CLOCK = {'type': 'function', 'function': {
    'name': 'get_time', 'description': 'Returns the time.', 'parameters': {'type': 'object', 'properties': {}}}}


class FixedTime(datetime):
    @classmethod
    def now(cls, tz=None):
        return datetime.fromtimestamp(NOW, tz)


def message(role, content, **fields):
    return {'role': role, 'content': content, **fields}


def call(name, arguments, id='abcdef123'):
    return {'id': id, 'type': 'function', 'function': {'name': name, 'arguments': arguments}}


def fixed_dialogues():
    system, user, assistant = (lambda text, role=role: message(role, text) for role in ('system', 'user', 'assistant'))
    weather = call('get_weather', {'city': 'Zürich', 'days': 2, 'deep': {'a': [1, 2.5, None, True]}})
    result = message('tool', '{"t": 21.5}', name='get_weather', tool_call_id='abcdef123')
    yield [user('Hi')]
    yield [user('Hi'), assistant('Hello!')]
    yield [system('Be brief.'), user('Hi'), assistant('Hello!'), user('Why?'), assistant('Because.')]
    yield [system(''), user(''), assistant('')]
    yield [user(' \n spaces \t\n'), assistant('\n\nlines\n'), user('  '), assistant(' x ')]
    yield [user('\U0001f600 naïve 東京 e\u0301'), assistant('<|im_end|> "quoted" \'single\' \\ back & <b>')]
    yield [user('a' * 20000), assistant('long ' * 5000)]
    yield [user(f'question {i}') if i % 2 == 0 else assistant(f'answer {i}') for i in range(60)]
    yield [assistant('I begin.'), user('Hi')]
    yield [user('Hi'), user('again'), assistant('one'), assistant('two')]
    yield [user('Hi'), system('late'), assistant('Hello!')]
    yield [message('unknown', 'x')]
    yield []
    yield [message('developer', 'Be exact.'), user('Hi'), assistant('Hello!')]
    yield [user('Hi'), assistant('<think>\nI think.\n</think>\n\nHello!'), user('And?'),
           assistant('<think>so</think>Fine')]
    yield [user('Hi'), message('assistant', 'Hello!', reasoning_content='Reasons.'), user('x')]
    yield [user('Hi'), message('assistant', 'Hello!', thinking='Thoughts.')]
    yield [user([{'type': 'text', 'text': 'parts '}, {'type': 'text', 'text': 'two'}]),
           assistant([{'type': 'text', 'text': 'answer'}])]
    yield [user([{'type': 'image'}, {'type': 'text', 'text': 'What is it?'}]), assistant('A cat.')]
    yield [user([{'type': 'image_url', 'image_url': {'url': 'x'}}, {'type': 'video'}, {'type': 'audio'}])]
    yield [system([{'type': 'text', 'text': 'sys'}]), user('Hi'), assistant('Hello!')]
    yield [user('Weather?'), message('assistant', None, tool_calls=[weather]), result, assistant('It is warm.')]
    yield [user('Weather?'), message('assistant', '', tool_calls=[weather]), result, assistant('Warm.'), user('Thanks')]
    yield [user('Weather?'), message('assistant', 'I look.', tool_calls=[weather, call('get_time', {}, 'abcdef124')]),
           result, message('tool', 'noon', name='get_time', tool_call_id='abcdef124'), assistant('Warm at noon.')]
    yield [system('s'), user('W?'), message('assistant', None, tool_calls=[call('get_weather', '{"city": "Bern"}')]),
           message('tool', [{'type': 'text', 'text': 'parts'}], tool_call_id='abcdef123'), assistant('ok')]
    yield [user('W?'), message('assistant', None, tool_calls=[weather['function']]), message('tool', 'r')]
    yield [user('W?'), {'role': 'assistant', 'tool_calls': [weather]}, result]
    yield [user('W?'), message('ipython', '{"a": 1}'), assistant('ok')]
    yield [user('W?'), message('assistant', 'x', tool_calls=[]), user('y')]
    yield [message('user', 7), message('assistant', 2.5)]
    yield [message('user', {'a': 'b'}), message('assistant', True)]
    yield [{'content': 'no role'}]
    yield [{'role': 'user'}]


def random_dialogues(count):
    source = random.Random(17)
    words = ['the', 'cat', 'Ärger', '\n', '  ',
             '\U0001f680', '{{ x }}', '{%', '</s>', '<|eot_id|>', '\t', '"', "it's", '1e5',
             '<think>', '</think>', '\\n', '[INST]', '\u2028', 'ß', '&amp;', '']

    def text():
        return ' '.join(source.choice(words) for _ in range(source.randrange(9)))

    for _ in range(count):
        chat = [message('system', text())] if source.random() < .5 else []
        for turn in range(source.randrange(1, 9)):
            role = 'user' if turn % 2 == 0 else 'assistant'
            if source.random() < .1:
                role = source.choice(['user', 'assistant', 'tool', 'system'])
            chat.append(message(role, text()))
            if role == 'assistant' and source.random() < .3:
                arguments = {text(): source.choice([text(), 1, None, 1.5e30, [text()], {'k': text()}])}
                chat[-1]['tool_calls'] = [call(source.choice(['get_weather', 'other']), arguments)]
                chat.append(message('tool', text(), name='get_weather', tool_call_id='abcdef123'))
        yield chat


def dialogues():
    for index, chat in enumerate(itertools.chain(fixed_dialogues(), random_dialogues(22))):
        tools = [None, [WEATHER, CLOCK], [CLOCK]][index % 3] if index > 3 else None
        documents = [{'title': 'T', 'text': 'Some text.'}] if index % 7 == 6 else None
        options = [{}, {'enable_thinking': False}, {'enable_thinking': True}, {'date_string': '1 Jan 2026'}][index % 4]
        for prompt in (False, True):
            yield {'messages': chat, 'tools': tools, 'documents': documents, 'add_generation_prompt': prompt,
                   **SPECIAL_TOKENS, **options}


def render_reference(template, conversation):
    """Returns the text and the ranges in bytes, or the error."""
    options = {key: value for key, value in conversation.items() if key not in ('messages',)}
    try:
        messages = reference._normalize_chat_messages(conversation['messages'])
        texts, ranges = reference.render_jinja_template(
            [messages], chat_template=template, return_assistant_tokens_mask=True, **options)
    except Exception as error:  # any error of a template is an error of ours, too
        return {'error': f'{type(error).__name__}: {error}'}
    text = texts[0]
    return {'text': text,
            'generated': [[len(text[:begin].encode()), len(text[:end].encode())] for begin, end in ranges[0]]}


ATOMS = """a b s u e n t f l ls d m nest zz m[0] m[-1].role d.x d['y'] 1 0 -3 2.5 'x' '' 'lo' [1,2] (1,2) {'k':1} none
    true range(4) 'a,b,,c' u[1:] l[::-1] nest.a.b s|length l|first m|length s[0]""".split()
FILTERS = """upper lower trim length list first last string int float abs sort unique|list reverse|list join(',') tojson
    tojson(indent=2) default('D') d('x',true) items|list dictsort title capitalize replace('o','0') map('upper')|list
    map(attribute='role')|list selectattr('role','equalto','user')|list rejectattr('k','none')|list
    select('string')|list reject('none')|list sum min max escape safe indent
    indent(2,true) string|length sort(attribute='role') sum(attribute='k')
    map('int')|list""".split()
METHODS = """.strip() .lstrip('H') .rstrip('d') .split() .split(',') .split('l',1) .splitlines() .startswith('H')
    .endswith(('d','x')) .replace('l','L',1) .upper() .title() .capitalize() .find('o') .rfind('o') .count('l')
    .get('x') .get('q',3) .items()|list .keys()|list .isdigit() .isalpha() .append(1) .foo .role [0] [-1] ['x']
    [1:3] [::2] [5:1:-2] .__class__""".split()
TESTS = """defined undefined none string number integer float boolean mapping iterable sequence odd even
    true""".split() + ['in [1, 2]', 'eq 1', "ne 'x'", 'gt 1', 'not none']
OPERATORS = '+ - * / // % ~ == != < > <= >= in and or'.split() + ['not in']
VARIABLES = {
    'a': 1, 'b': 2.5, 's': 'Hello World', 'u': 'Ünï 東京 \U0001f600ß', 'e': '', 'n': None, 't': True, 'f': False,
    'l': [3, 1, 2], 'ls': ['b', 'A', 'c'], 'd': {'x': 1, 'y': [1, 2], 'items': 5}, 'nest': {'a': {'b': {'c': [1]}}},
    'm': [{'role': 'user', 'content': 'hi', 'k': 2}, {'role': 'assistant', 'content': 'yo', 'k': 1}]}


def make_expression(source, depth):
    def inner():
        return make_expression(source, depth - 1)
    kind = source.random() if depth > 0 else 0
    if kind < .2:
        return source.choice(ATOMS)
    if kind < .45:
        return f'{inner()}|{source.choice(FILTERS)}'
    if kind < .6:
        return source.choice(list(VARIABLES)) + source.choice(METHODS)
    if kind < .7:
        return f'({inner()} is {source.choice(TESTS)})'
    if kind < .77:
        return f'({inner()} if {inner()} else {inner()})'
    if kind < .82:
        return f'[{inner()}, {inner()}]'
    return f'({inner()} {source.choice(OPERATORS)} {inner()})'


def compare_expressions(renderer, count):
    source = random.Random(5)
    different = 0
    for _ in range(count):
        template = '{{ ' + make_expression(source, 3) + ' }}'
        try:
            expected = {'text': reference._compile_jinja_template(template).render(**VARIABLES), 'generated': []}
        except Exception as error:  # any error of a template is an error of ours, too
            expected = {'error': str(error)}
        got = renderer.render({'template': template, 'variables': VARIABLES})
        if not is_same(expected, got):
            different += 1
            print(f'{template}:\n  expected {expected}\n  got      {got}')
    print(f'{count} expressions, {different} differences')
    return different


def make_tokenizer(folder):
    """Saves a byte-level BPE tokenizer of the documentation, and returns the folder."""
    import tokenizers
    import transformers
    docs = pathlib.Path(__file__).resolve().parent.parent / 'docs'
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    markers = ['<|im_start|>', '<|im_end|>', '<|eot_id|>', '<|start_header_id|>', '<|end_header_id|>',
               '<start_of_turn>', '<end_of_turn>', '[INST]', '[/INST]']
    made.train([str(path) for path in sorted(docs.rglob('*.md'))], tokenizers.trainers.BpeTrainer(
        vocab_size=4096, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(), show_progress=False,
        special_tokens=[*SPECIAL_TOKENS.values(), *markers]))
    made.add_tokens(['<think>', '</think>'])
    transformers.PreTrainedTokenizerFast(tokenizer_object=made, **SPECIAL_TOKENS).save_pretrained(folder)
    return folder


def load_tokenizer(folder):
    import transformers
    return transformers.AutoTokenizer.from_pretrained(folder)


def mark_turns(tokenizer, messages, tools):
    """Returns the ids and the mask of the turns between rendered prefixes; None if they are no prefixes."""
    def render(count, prompt):
        return tokenizer.apply_chat_template(messages[:count], tools=tools, add_generation_prompt=prompt,
                                             tokenize=False)
    whole = render(len(messages), False)
    encoded = tokenizer(whole, add_special_tokens=False, return_offsets_mapping=True)
    mask = [0] * len(encoded['input_ids'])
    for turn, each in enumerate(messages):
        if each['role'] != 'assistant':
            continue
        if turn == 0:
            return None  # transformers renders no empty conversation
        before, after = render(turn, True), render(turn + 1, False)
        if not whole.startswith(before) or not whole.startswith(after) or len(after) <= len(before):
            return None
        first, last = (encoded.char_to_token(at) for at in (len(before), len(after) - 1))
        mask[first:last + 1] = [1] * (last + 1 - first)
    return encoded['input_ids'], mask


def encode_reference(tokenizer, messages, tools, prompt_messages):
    """Returns the ids and the mask, the error, or None if nothing defines the mask."""
    def encode(chat, **options):
        return tokenizer.apply_chat_template(chat, tools=tools, tokenize=True, return_dict=True, **options)
    try:
        if prompt_messages > 0:
            ids = encode(messages)['input_ids']
            prompt = encode(messages[:prompt_messages], add_generation_prompt=True)['input_ids']
            marked = ids, [0] * min(len(prompt), len(ids)) + [1] * (len(ids) - len(prompt))
        elif 'endgeneration' in tokenizer.chat_template:
            encoded = encode(messages, return_assistant_tokens_mask=True)
            marked = encoded['input_ids'], encoded['assistant_masks']
        else:
            marked = mark_turns(tokenizer, messages, tools)
    except Exception as error:  # any error of a template is an error of ours, too
        return {'error': f'{type(error).__name__}: {error}'}
    return marked and {'ids': list(marked[0]), 'trained': list(marked[1])}


def token_dialogues():
    """Yields messages, tools and the number of messages that are a prompt."""
    for index, chat in enumerate(itertools.chain(fixed_dialogues(), random_dialogues(22))):
        long = sum(len(str(each.get('content'))) for each in chat) > 5000
        if long or not chat or any('role' not in each for each in chat):
            continue
        tools = [CLOCK] if index % 5 == 4 else None
        yield chat, tools, 0
        if len(chat) > 1 and chat[-1]['role'] == 'assistant' and chat[-2]['role'] == 'user':
            yield chat, tools, len(chat) - 1


def compare_tokens(renderer, templates, folder):
    tokenizer = load_tokenizer(folder)
    compared = undefined = different = 0
    for path in templates:
        tokenizer.chat_template = pathlib.Path(path).read_text(encoding='utf-8')
        for index, (messages, tools, prompt_messages) in enumerate(token_dialogues()):
            expected = encode_reference(tokenizer, messages, tools, prompt_messages)
            got = renderer.render({'template': tokenizer.chat_template, 'tokenizer': folder, 'messages': messages,
                                   'tools': tools, 'prompt_messages': prompt_messages})
            if expected is None:
                undefined += 1
                continue
            compared += 1
            if not is_same(expected, got):
                different += 1
                print(f'{path}: tokens of dialogue {index}:\n  expected {str(expected)[-300:]}\n'
                      f'  got      {str(got)[-300:]}')
    print(f'{compared} tokenized dialogues, {different} differences, {undefined} without a reference')
    return different


class Renderer:
    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def render(self, request):
        self.process.stdin.write(json.dumps({'now': NOW, **request}) + '\n')
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


def find_templates(folders):
    for package in ('trl', 'axolotl'):
        spec = importlib.util.find_spec(package)
        folders += spec.submodule_search_locations if spec else []
    for folder in folders:
        yield from sorted(glob.glob(os.path.join(folder, '**', '*.jinja'), recursive=True))


def is_same(expected, got):
    return ('error' in expected) == ('error' in got) and ('error' in expected or expected == got)


def main(program, folders, expressions, tokenizer):
    renderer = Renderer(program)
    templates = list(find_templates(folders))
    with tempfile.TemporaryDirectory() as folder:
        different_tokens = compare_tokens(renderer, templates, tokenizer or make_tokenizer(folder))
    reference.datetime = FixedTime
    chats = list(dialogues())
    rendered = errors = different = 0
    for path in templates:
        with open(path, encoding='utf-8') as file:
            template = file.read()
        for index, chat in enumerate(chats):
            expected = render_reference(template, chat)
            got = renderer.render({'template': template, 'conversation': chat})
            rendered += 1
            errors += 'error' in expected
            if not is_same(expected, got):
                different += 1
                print(f'{path}: dialogue {index}:\n  expected {str(expected)[-300:]}\n  got      {str(got)[-300:]}')
    print(f'{len(templates)} templates, {rendered} renderings, {errors} errors in both, {different} differences')
    return different_tokens + different + compare_expressions(renderer, expressions) > 0


if __name__ == '__main__':
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('program')
    parser.add_argument('folders', nargs='*')
    parser.add_argument('--expressions', type=int, default=2000)
    parser.add_argument('--tokenizer')
    arguments = parser.parse_args()
    sys.exit(main(arguments.program, arguments.folders, arguments.expressions, arguments.tokenizer))
